"""The methods of both clients, as one table: each line names the call or the exchange that a client performs.

``Client`` performs it with blocking calls and returns the answer; ``AsyncClient`` returns a coroutine, or an
asynchronous iterator. A method has the name, docstring and arguments of its call or exchange.
"""

import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from corelane.client import admin, contexts, endpoints, forecasts
from corelane.client.endpoints import Call
from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange, Iteration
from corelane.client.transport import BaseClient, Http

if TYPE_CHECKING:
    from corelane.client.aio import AsyncClient
    from corelane.client.blocking import Client

Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)
P = ParamSpec("P")


class AnsweringMethod(Protocol[P, Answer_co]):
    """The type of a method that returns one answer: at once, or in a coroutine."""

    @overload
    def __get__(self, client: "Client", of: Any) -> Callable[P, Answer_co]: ...
    @overload
    def __get__(self, client: "AsyncClient", of: Any) -> Callable[P, Coroutine[Any, Any, Answer_co]]: ...


class IteratingMethod(Protocol[P, Answer_co]):
    """The type of a method that returns several things, one at a time."""

    @overload
    def __get__(self, client: "Client", of: Any) -> Callable[P, Generator[Answer_co, None, None]]: ...
    @overload
    def __get__(self, client: "AsyncClient", of: Any) -> Callable[P, AsyncGenerator[Answer_co, None]]: ...


def call(make: Callable[P, Call[Answer]]) -> AnsweringMethod[P, Answer]:
    """Return a method that makes one call."""
    return cast(AnsweringMethod[P, Answer], _like(make, 0, lambda self, call: self._perform(self._protocol.call(call))))


def exchange(make: Callable[Concatenate[ServiceProtocol, P], Exchange[Answer]]) -> AnsweringMethod[P, Answer]:
    """Return a method that performs an exchange."""
    return cast(AnsweringMethod[P, Answer], _like(make, 1, lambda self, exchange: self._perform(exchange)))


def iteration(make: Callable[Concatenate[ServiceProtocol, P], Iteration[Answer]]) -> IteratingMethod[P, Answer]:
    """Return a method that iterates over the results of an exchange."""
    return cast(IteratingMethod[P, Answer], _like(make, 1, lambda self, exchange: self._iterate(exchange)))


def _like(make: Callable[..., Any], skipped: int, perform: Callable[["ClientMethods[Any]", Any], Any]) -> object:
    """Return a method with the name, docstring and arguments of the function that makes its call or exchange.

    The first ``skipped`` arguments are left out: the protocol, if the function takes one.
    """

    def method(self: "ClientMethods[Any]", /, *args: Any, **kwargs: Any) -> Any:
        return perform(self, make(*(self._protocol,) * skipped, *args, **kwargs))

    signature = inspect.signature(make)
    client = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    arguments = [client, *list(signature.parameters.values())[skipped:]]
    method.__name__, method.__doc__ = make.__name__, make.__doc__
    method.__signature__ = signature.replace(parameters=arguments, return_annotation=signature.empty)  # type: ignore[attr-defined]
    return method


class ClientMethods(BaseClient[Http]):
    """The table of methods. Arguments and details are at the call or the exchange that a line names."""

    @abstractmethod
    def _perform(self, exchange: Exchange[Any]) -> Any: ...

    @abstractmethod
    def _iterate(self, exchange: Iteration[Any]) -> Any: ...

    ask = exchange(ServiceProtocol.ask)
    submit = exchange(ServiceProtocol.submit)
    submit_lines = call(endpoints.submit_lines)
    forecast = exchange(forecasts.forecast)
    forecast_lines = call(forecasts.forecast_lines)
    get = call(endpoints.get_job)
    wait = exchange(ServiceProtocol.wait)
    iter_results = iteration(ServiceProtocol.results)
    iter_jobs = iteration(ServiceProtocol.jobs)
    iter_failed_items = iteration(admin.failed_items)
    failure_groups = exchange(admin.failure_groups)
    bulk = exchange(admin.bulk)
    retry = call(endpoints.retry)
    delete = call(endpoints.delete_job)
    iter_events = iteration(ServiceProtocol.events)
    drop_results = call(endpoints.drop_results)
    cancel = call(endpoints.cancel)

    batch = exchange(ServiceProtocol.batch)
    create_batch = call(endpoints.create_batch)
    forecast_batch = call(forecasts.forecast_batch)
    get_batch = call(endpoints.get_batch)
    iter_batches = iteration(ServiceProtocol.batches)
    cancel_batch = call(endpoints.cancel_batch)
    upload_file = call(endpoints.upload_file)
    get_file = call(endpoints.get_file)
    iter_files = iteration(ServiceProtocol.files)
    download_file = exchange(ServiceProtocol.download)
    delete_file = call(endpoints.delete_file)

    put_context = call(contexts.put_context)
    get_context = call(contexts.get_context)
    read_context = call(contexts.read_context)
    iter_contexts = iteration(contexts.contexts)
    delete_context = call(contexts.delete_context)

    deliveries = call(endpoints.list_deliveries)
    dead_deliveries = call(endpoints.dead_deliveries)
    get_delivery = call(endpoints.get_delivery)
    redeliver = call(endpoints.redeliver)

    overview = call(endpoints.overview)
    scaling = call(endpoints.scaling)
    history = call(endpoints.history)
    usage = call(admin.usage)
    clear_cache = call(admin.clear_cache)
    webhook_secrets = call(admin.webhook_secrets)
    create_webhook_secret = call(admin.create_webhook_secret)
    rotate_webhook_secret = call(admin.rotate_webhook_secret)
    remove_webhook_secret = call(admin.remove_webhook_secret)
    cores = call(endpoints.cores)
    models = call(endpoints.models)
    load_model = call(endpoints.load_model)
    reload_model = call(endpoints.reload_model)
    unload_model = call(endpoints.unload_model)
    aliases = call(endpoints.aliases)
    set_alias = call(endpoints.set_alias)
    unset_alias = call(endpoints.unset_alias)
    pause = call(admin.pause)
    resume = call(admin.resume)
    pauses = call(admin.pauses)
    iter_audit = iteration(admin.audit)
    ready = exchange(ServiceProtocol.ready)
