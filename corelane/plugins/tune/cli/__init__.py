"""Commands about known answers."""
