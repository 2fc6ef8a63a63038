"""Jobs in the store: admission, records, events, results, listing, retries."""
