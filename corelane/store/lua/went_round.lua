-- went_round(name): whoever sees to it (sweeps, feeding, batches) is alive and at it
redis.call('HSET', 'cl:rounds', ARGV[1], now_ms())
