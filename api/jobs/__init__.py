"""Jobs over HTTP: submit them, wait for them, retry them, show them."""
