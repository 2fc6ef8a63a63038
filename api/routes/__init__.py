"""Routes by resource. Only they deal with HTTP: status codes, headers, requests and responses."""
