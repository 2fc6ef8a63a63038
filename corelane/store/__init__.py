"""The store: the only code that changes a job. All state lives in Redis, under the keys of ``keys``.

Every function of the Lua library (``lua/``) is atomic and may be repeated: a repeated submit finds its job, a repeated
commit finds no lease. ``jobs``, ``fleet``, ``rollout`` and ``deliveries.log`` serve the API, ``dispatch``, ``fleet``
and ``plans`` the workers, ``upkeep`` and ``feeding`` the keeper, ``files`` and ``batches`` the API and the keeper,
``deliveries.sending`` the sender of webhooks, ``api_keys`` the API and the operator.
"""
