"""The commands `corelane bench` and `corelane plan`."""
