-- ring(core, envelope): there is something to do for this core; one that works finds it between two batches.
ring(ARGV[1], ARGV[2])
return 1
