"""The Redis keys of files, batches, and inputs and outputs by URL. ``corelane.store.keys`` says how to read them."""

from corelane.store.keys import RedisKey

# A file's content is in the storage of files. A batch's hash has owner, status, times, input, plan, counts, files,
# request id, traceparent.
file = RedisKey("cl:file:{%s}", "hash")  # owner, purpose, name, bytes, times; as the file
batch = RedisKey("cl:batch:{%s}", "hash")  # files_ttl_s after it is final
files = RedisKey("cl:files:%s", "zset")  # owner → ids of files
batches = RedisKey("cl:batches:%s", "zset")  # owner → ids of batches
BATCHING = RedisKey("cl:batching", "zset")  # batch that is not final → time it was created
RETIRING = RedisKey("cl:retiring", "zset")  # file, or final batch → time it is forgotten
TIDIED = RedisKey("cl:tidied", "string")  # set while it is too early to look for stray files; a day
BATCHER = RedisKey("cl:batcher", "string")  # the process that carries batches on; 10 s
CARRIER = RedisKey("cl:carrier", "string")  # the process that reads inputs and writes outputs by URL; 10 s
WRITING = RedisKey("cl:writing", "zset")  # final job whose results go to a URL, not written yet → time it is tried next
