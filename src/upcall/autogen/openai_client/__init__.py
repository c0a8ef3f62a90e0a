"""Our client for servers that speak OpenAI's protocol: what is sent, what a reply says, what a server refuses."""
