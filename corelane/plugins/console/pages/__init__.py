"""The console: the service's pages for people, at /console."""
