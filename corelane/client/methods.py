"""The methods of both clients, as one table: each line names the call or the exchange that a client performs.

``Client`` performs it with blocking calls and returns the reply; ``AsyncClient`` returns a coroutine, or an
asynchronous iterator. A method has the name, docstring and arguments of its call or exchange.
"""

import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Sequence
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import httpx2

from corelane.client import admin, endpoints
from corelane.client.endpoints import Call
from corelane.client.frames import run_frame
from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange, Iteration
from corelane.client.transport import BaseClient, Http
from corelane.tasks.feature_extraction import client as feature_extraction
from corelane.tasks.question_answering import client as question_answering
from corelane.tasks.text_classification import client as text_classification
from corelane.tasks.text_ranking import client as text_ranking
from corelane.tasks.token_classification import client as token_classification
from corelane.tasks.zero_shot_classification import client as zero_shot_classification

Reply = TypeVar("Reply")
Reply_co = TypeVar("Reply_co", covariant=True)
P = ParamSpec("P")


class ReplyingMethod(Protocol[P, Reply_co]):
    """The type of a method that returns one thing: at once, or in a coroutine."""

    @overload
    def __get__(self, client: "ClientMethods[httpx2.Client]", of: Any) -> Callable[P, Reply_co]: ...
    @overload
    def __get__(
        self, client: "ClientMethods[httpx2.AsyncClient]", of: Any
    ) -> Callable[P, Coroutine[Any, Any, Reply_co]]: ...


class IteratingMethod(Protocol[P, Reply_co]):
    """The type of a method that returns several things, one at a time."""

    @overload
    def __get__(
        self, client: "ClientMethods[httpx2.Client]", of: Any
    ) -> Callable[P, Generator[Reply_co, None, None]]: ...
    @overload
    def __get__(
        self, client: "ClientMethods[httpx2.AsyncClient]", of: Any
    ) -> Callable[P, AsyncGenerator[Reply_co, None]]: ...


class OneOrMany(Protocol[P, Reply]):
    """A function that returns one result for one text, or a list of results for several texts."""

    @overload
    def __call__(self, text: str, /, *args: P.args, **kwargs: P.kwargs) -> Reply: ...
    @overload
    def __call__(self, texts: Iterable[Any], /, *args: P.args, **kwargs: P.kwargs) -> list[Reply]: ...


class AwaitedOneOrMany(Protocol[P, Reply]):
    """A function like ``OneOrMany`` that returns a coroutine."""

    @overload
    def __call__(self, text: str, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Reply]: ...
    @overload
    def __call__(
        self, texts: Iterable[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, list[Reply]]: ...


class OneOrManyMethod(Protocol[P, Reply]):
    """The type of a method that takes one text or several."""

    @overload
    def __get__(self, client: "ClientMethods[httpx2.Client]", of: Any) -> OneOrMany[P, Reply]: ...
    @overload
    def __get__(self, client: "ClientMethods[httpx2.AsyncClient]", of: Any) -> AwaitedOneOrMany[P, Reply]: ...


def call(make: Callable[P, Call[Reply]]) -> ReplyingMethod[P, Reply]:
    """Return a method that makes one call."""
    return cast(ReplyingMethod[P, Reply], _like(make, 0, lambda self, call: self._perform(self._protocol.call(call))))


def exchange(make: Callable[Concatenate[ServiceProtocol, P], Exchange[Reply]]) -> ReplyingMethod[P, Reply]:
    """Return a method that performs an exchange."""
    return cast(ReplyingMethod[P, Reply], _like(make, 1, lambda self, exchange: self._perform(exchange)))


def iteration(make: Callable[Concatenate[ServiceProtocol, P], Iteration[Reply]]) -> IteratingMethod[P, Reply]:
    """Return a method that iterates over the results of an exchange."""
    return cast(IteratingMethod[P, Reply], _like(make, 1, lambda self, exchange: self._iterate(exchange)))


def one_or_many(
    make: Callable[Concatenate[ServiceProtocol, Sequence[Any], P], Exchange[list[Reply]]],
) -> OneOrManyMethod[P, Reply]:
    """Return a method that performs an exchange about several texts. For a single text it returns one result."""

    def each(service: ServiceProtocol, texts: Any, /, *args: P.args, **kwargs: P.kwargs) -> Exchange[Any]:
        is_one = isinstance(texts, str)
        found = yield from make(service, [texts] if is_one else list(texts), *args, **kwargs)
        return found[0] if is_one else found

    update_wrapper(each, make)
    return cast(OneOrManyMethod[P, Reply], exchange(each))


def _like(make: Callable[..., Any], skipped: int, perform: Callable[["ClientMethods[Any]", Any], Any]) -> object:
    """Return a method with the name, docstring and arguments of the function that makes its call or exchange.

    The first ``skipped`` arguments are left out: the protocol, if the function takes one.
    """

    def method(self: "ClientMethods[Any]", /, *args: Any, **kwargs: Any) -> Any:
        return perform(self, make(*(self._protocol,) * skipped, *args, **kwargs))

    signature = inspect.signature(make)
    taken = list(signature.parameters.values())[skipped:]
    kind = min([inspect.Parameter.POSITIONAL_OR_KEYWORD, *(each.kind for each in taken)])
    arguments = [inspect.Parameter("self", kind), *taken]
    method.__name__, method.__doc__ = make.__name__, make.__doc__
    method.__signature__ = signature.replace(parameters=arguments, return_annotation=signature.empty)  # type: ignore[attr-defined]
    return method


class ClientMethods(BaseClient[Http]):
    """The table of methods. Arguments and details are at the call or the exchange that a line names."""

    @abstractmethod
    def _perform(self, exchange: Exchange[Any]) -> Any: ...

    @abstractmethod
    def _iterate(self, exchange: Iteration[Any]) -> Any: ...

    ask = exchange(question_answering.ask)
    classify = one_or_many(text_classification.classify)
    zero_shot = one_or_many(zero_shot_classification.zero_shot)
    entities = one_or_many(token_classification.entities)
    embed = one_or_many(feature_extraction.embed)
    rerank = exchange(text_ranking.rerank)
    predict = exchange(ServiceProtocol.predict)
    run_frame = exchange(run_frame)

    submit = exchange(ServiceProtocol.submit)
    submit_lines = call(endpoints.submit_lines)
    get = call(endpoints.get_job)
    wait = exchange(ServiceProtocol.wait)
    iter_results = iteration(ServiceProtocol.results)
    iter_jobs = iteration(ServiceProtocol.jobs)
    retry = call(endpoints.retry)
    delete = call(endpoints.delete_job)
    iter_events = iteration(ServiceProtocol.events)
    drop_results = call(endpoints.drop_results)
    cancel = call(endpoints.cancel)

    batch = exchange(ServiceProtocol.batch)
    create_batch = call(endpoints.create_batch)
    get_batch = call(endpoints.get_batch)
    iter_batches = iteration(ServiceProtocol.batches)
    cancel_batch = call(endpoints.cancel_batch)
    upload_file = call(endpoints.upload_file)
    get_file = call(endpoints.get_file)
    iter_files = iteration(ServiceProtocol.files)
    download_file = exchange(ServiceProtocol.download)
    delete_file = call(endpoints.delete_file)

    deliveries = call(endpoints.list_deliveries)
    redeliver = call(endpoints.redeliver)

    overview = call(endpoints.overview)
    usage = call(admin.usage)
    webhook_secrets = call(admin.webhook_secrets)
    create_webhook_secret = call(admin.create_webhook_secret)
    remove_webhook_secret = call(admin.remove_webhook_secret)
    cores = call(endpoints.cores)
    models = call(endpoints.models)
    get_model = call(endpoints.get_model)
    load_model = call(endpoints.load_model)
    reload_model = call(endpoints.reload_model)
    unload_model = call(endpoints.unload_model)
    aliases = call(endpoints.aliases)
    set_alias = call(endpoints.set_alias)
    unset_alias = call(endpoints.unset_alias)
    pause = call(admin.pause)
    resume = call(admin.resume)
    pauses = call(admin.pauses)
    ready = exchange(ServiceProtocol.ready)
