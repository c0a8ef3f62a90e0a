"""The coder's folder: files, patches, commands and their sandboxes."""
