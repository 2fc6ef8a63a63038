"""What tests share: servers, fleets, receivers, waiting, and fakes of what the product talks to."""
