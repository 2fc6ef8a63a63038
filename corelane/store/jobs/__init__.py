"""Jobs in the store: admission, records, events, results, search, retries."""
