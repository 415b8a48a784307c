"""The same three-branch match in each client library's terms."""
