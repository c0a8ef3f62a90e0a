"""What `Upcall` has beside its verbs, an object a subject: `app.log`, `app.access`, `app.changes`, ..."""
