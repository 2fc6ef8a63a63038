"""Routes by resource. Only they know HTTP: status codes, headers, requests and responses."""
