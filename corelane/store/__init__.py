"""The store: the only code that changes a job. All state lives in Redis under the prefix ``cl:``.

    key                        type    meaning                                                   expiry
    cl:job:{ID}                hash    the job: status, version, counts, times, options, owner,  results_ttl_s once
                                       promise, webhook, request id, traceparent; how far it     final
                                       was fed, dropped and told
    cl:in:{ID}                 hash    index of a slice's first item → its rows, one JSON text   60 s until submitted;
                                                                                                 gone once answered,
                                                                                                 as job if one failed
    cl:contexts:{ID}           hash    number → a passage that items of the job share            as job if an item was
                                                                                                 not answered
    cl:out:{ID}                hash    index of the first item → results, one JSON text          as job, or dropped
    cl:dropped:{ID}            bitmap  indexes of dropped results that were no success           as job
    cl:index:OWNER             zset    the owner's jobs by id, which is by time; score 0         none (keeper prunes)
    cl:keeping                 zset    OWNER:JOB, with :file if it was sent as lines, → until    none
                                       when the final job is kept, ms
    cl:gone:ID                 string  owner of a job that is kept no longer                     gone_ttl_s
    cl:once:OWNER:DIGEST       string  what an Idempotency-Key made, and of which body           idempotency_ttl_s
    cl:name:OWNER:NAME         string  the job of that name, and of which body it was made       as job
    cl:retry:{ID}              string  the job that retries it                                   as the retrying job
    cl:story:{ID}              stream  its events, once there are others than beginning and      as job; the last 1,000
                                       end: progress, best answers so far of documents           or so are kept
    cl:lane:VERSION:P:OWNER    list    refs of an owner's (API key's) small jobs that wait for a   none
                                       version at priority P (0, 1, 2), oldest first
    cl:refs:{ID}               list    refs of a larger job that wait, oldest first              none (job's end)
    cl:line:VERSION:P:OWNER    zset    the owner's larger jobs with refs waiting → tokens it was   none
                                       served so far; `-`: an eighth of those of small jobs
    cl:returned:VERSION        list    refs that a lost claim held: they go first, alone         none
    cl:lanes:P:OWNER           set     versions for which the owner has such a lane; `+` and     none
                                       the version for such a line
    cl:shares:P                zset    owner with refs waiting → tokens it was served so far     none
    cl:waiting                 hash    version → estimated tokens in its lanes                   none
    cl:held                    hash    core → estimated tokens it has claimed and not answered   none
    cl:owed                    hash    OWNER:P → estimated tokens of an owner not yet answered   none
    cl:unfed                   hash    OWNER:P → estimated tokens that stand in files still      none
    cl:open:P                  set     jobs that are not final, by priority                      none
    cl:turns                   hash    core → times it asked for work; the eighth begins at low  none (core's end)
    cl:rate:SECOND             hash    owner → estimated tokens answered in that second          60 s
    cl:speeds                  hash    core → its speed in tokens/s: mean, low, high             none (core's end)
    cl:expiring                zset    open job → time it expires, ms                            none
    cl:feeds                   zset    job sent as lines, not fed to its end → submitted, ms     none
    cl:feeder                  string  who feeds now                                             5 s
    cl:bell:CORE               string  absent (asleep), r (rung or busy), l (drain lingers)      30 s, l: 5 s
    cl:wake:CORE               list    wakes a lingering drain                                   30 s
    cl:seq, cl:fence           string  counters: bells rung, claims made                         stays
    cl:claim:LEASE             hash    what a claim still holds: JOB:FIRST → ref                 none (leases end it)
    cl:leases                  zset    lease (CORE#FENCE) → deadline, ms                         none
    cl:claimed                 hash    core → time it last asked for work, ms                    none (core's end)
    cl:core:CORE               hash    the heartbeat: state, pid, versions, busy ratio, work     lease_s
                                       done
    cl:cores                   zset    every core → time of its last heartbeat, ms               none (an hour)
    cl:out_of_service          set     cores that are broken and take no versions                none (core's end)
    cl:holders:VERSION         zset    core → time until which it surely holds the version, ms   none (keeper prunes)
    cl:models                  hash    version → what it is, JSON                                stays
    cl:aliases                 hash    alias → version, or pairs of version and weight           stays
    cl:pinned                  set     aliases set through the API: no worker moves them         stays
    cl:named                   hash    alias → the version that workers' settings mean by it     stays
    cl:placements              hash    version → where it is wanted, JSON                        stays
    cl:closed                  hash    version that takes no more jobs → since, ms               stays
    cl:plan                    string  counter: changes of placements; workers look when it      stays
                                       moves
    cl:jobs                    hash    version → its jobs that are not final                     none
    cl:loading:CORE            hash    VERSION#SINCE → loads begun there and not ended: a model  600 s
                                       that kills its process is not loaded again and again
    cl:restarting              string  the core whose process is being replaced, to free memory  60 s
    cl:loads:HOST              zset    core that loads a model while it serves → time its turn   lease_s
                                       ends unless renewed, ms
    cl:failed:VERSION          zset    core where a version wanted on so many cores did not      lease_s
                                       load → time until which that surely is so, ms
    cl:events                  stream  one entry per job that became final                       stays: 10,000 entries
    cl:told                    string  the last of them that was logged and counted              stays
    cl:ended                   hash    status → jobs that became final so                        stays
    cl:delivery:ID             hash    one event on its way to a webhook: url, bytes or what    3 days while pending,
                                       they are made of, state, attempts so far                  results_ttl_s done,
                                                                                                 dead_ttl_s dead
    cl:tries:ID                list    its last fifty attempts, JSON                             as the delivery
    cl:deliveries:SUBJECT      zset    deliveries of a job or batch → time of the event, ms      as the first of them
    cl:due:HOST                zset    deliveries to a host → time of the next attempt, ms       none
    cl:flight:HOST             zset    those under way → time they are due again, ms             none
    cl:due                     zset    host that has any → time it is worth a look, ms           none
    cl:failures                hash    host → failures in a row, while any wait for it           none
    cl:circuits                zset    host that is left alone → until, ms                       none
    cl:wake:couriers           list    wakes a sender of webhooks                                30 s
    cl:dead                    zset    dead letters → time they were given up, ms                none (keeper prunes)
    cl:posted                  hash    outcome → attempts and deliveries that ended so           stays
    cl:key:DIGEST              hash    an API key by its SHA-256: id, name, owner, scopes, times     stays
    cl:keys                    hash    id of a key → its digest                                  stays
    cl:keys:changed            string  counter: keys made and revoked; the API looks when it     stays
                                       moves
    cl:rates:{LIMITER/…}       string  requests of an owner or address in this time and the one  two such times
                                       before, as the `limits` library keeps them
    cl:owners                  zset    owner, where keys are not checked, that may keep          none (an hour after
                                       anything → time it was let in, ms                         nothing of it is)
    cl:pruned                  string  what has no end of its own was looked through             30 s
    cl:rounds                  hash    sweeps, feeding, batches → time somebody last saw to it,  stays
                                       ms
    cl:file:{ID}               hash    a file: owner, purpose, name, bytes, times; its content   its own
                                       is in the storage of files
    cl:files:OWNER             zset    ids of the owner's files                                  none
    cl:batch:{ID}              hash    a batch: owner, status, times, input, plan, counts,       files_ttl_s once
                                       files, request id, traceparent                            final
    cl:batches:OWNER           zset    ids of the owner's batches                                none
    cl:batching                zset    batch that is not final → created, ms                     none
    cl:batcher                 string  who carries batches on now                                10 s
    cl:retiring                zset    file, or batch that is final → when it is forgotten, ms   none
    cl:tidied                  string  the storage was looked through for what nobody knows      a day
    cl:done                    channel the id of each job that became final

A key or entry that says ``none`` goes with the last work, core, delivery or owner it is of; the keeper removes what
nobody else does (``prune``). Only keys that say ``stays`` are left when there is nothing to do: counters, the times of
rounds, the models and what was decided of them, API keys, the last events.

Times are Redis' own clock, so the clocks of hosts do not matter. Every script is atomic and may be repeated: a
repeated submit finds its job, a repeated commit finds no lease. ``admission``, ``jobs``, ``listing``, ``idempotency``,
``results``, ``events``, ``retries``, ``completions``, ``owners``, ``fleet``, ``rollout`` and ``delivery_log`` serve
the API, ``dispatch``, ``fleet`` and ``plans`` the workers, ``upkeep`` and ``feeding`` the keeper, ``files`` and
``batches`` the API and the keeper, ``deliveries`` the sender of webhooks, ``keys`` the API and the operator;
``records`` and ``payloads`` are how a job and its items are read.
"""
