-- wake(core, envelope): a starting child rings its own core, whatever bell its predecessor left behind.
redis.call('DEL', 'cl:bell:' .. ARGV[1], 'cl:wake:' .. ARGV[1])
ring(ARGV[1], ARGV[2])
return 1
