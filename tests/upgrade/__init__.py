"""What a release published stays: docs/decisions/0107-what-is-published.md."""
