"""Where work runs: in this process, in local processes (joblib's loky), or on a cluster that is there already.

`--jobs N` means N cores, as with make or xz: N processes of one thread each. Without it one process reads and encodes
with two threads.

joblib schedules, sends and collects; what is ours is only what to do when a worker dies. loky then gives up the whole
pool, though most of what was under way has nothing to do with it: the rest is tried once more, one at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from converter import threads
from schemas.errors import UsageError, WorkerError, printable

BACKENDS = ("loky", "dask", "ray")

Item = TypeVar("Item")
Result = TypeVar("Result")

#: What the backends raise where a worker was killed or ran out of memory.
_DEAD = ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker", "WorkerCrashedError", "RayActorError")
_DIED = "a worker process died (killed, or out of memory)"


@dataclass(frozen=True)
class Workers:
    """jobs: cores of this machine to use, None: not said; backend: `loky`, or an engine that runs already: `dask`,
    `ray`; scheduler: its address."""

    jobs: int | None = None
    backend: str = "loky"
    scheduler: str | None = None

    @property
    def alone(self) -> bool:
        """Everything runs in this process."""
        return (self.jobs or 1) < 2 and self.backend == "loky"

    def threads(self, processes: int = 1) -> int:
        """What each of so many processes may use of the cores."""
        if self.jobs is None or self.backend != "loky":
            return threads.MOST
        return max(1, self.jobs // processes)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results in the order of the items. Raises what `function` raises, and WorkerError where a worker dies."""
        if self.alone or len(items) < 2:
            return [function(item) for item in items]
        out: dict[int, Result] = {}
        try:
            out.update(self._run(function, list(enumerate(items))))
        except Exception as error:
            if not _is_death(error):
                raise
            raise WorkerError(f"{_DIED}; nothing was written; try fewer --jobs") from None
        return [out[i] for i in range(len(items))]

    def as_done(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        clean: Callable[[Item], None] = lambda _: None,
    ) -> Iterator[tuple[int, Result | WorkerError]]:
        """(position, result) of each item as it is done; a WorkerError where its worker died twice.

        clean: takes away what a dead worker left of an item, before it is tried again and after it failed.
        Raises what `function` raises.
        """
        if self.alone or not items:
            yield from ((i, function(item)) for i, item in enumerate(items))
            return
        left = dict(enumerate(items))
        try:
            for position, result in self._run(function, list(left.items())):
                del left[position]
                yield position, result
        except Exception as error:
            if not _is_death(error):
                raise
        finally:
            for item in left.values():
                clean(item)
        for position, item in left.items():
            try:
                ((_, result),) = self._run(function, [(position, item)])
            except Exception as error:
                if not _is_death(error):
                    raise
                yield position, WorkerError(f"{_DIED}; try it by itself")
            else:
                yield position, result
            finally:
                clean(item)

    def _run(
        self, function: Callable[[Item], Result], items: Collection[tuple[int, Item]]
    ) -> Iterator[tuple[int, Result]]:
        from joblib import Parallel, delayed

        with _engine(self.backend, self.scheduler):
            jobs = self.jobs or 1
            if self.backend != "loky":
                jobs = jobs if jobs > 1 else -1  # all of the cluster
            share = self.threads(min(jobs, len(items)))
            # Ray's backend knows no generators: its results come all at once.
            how = "list" if self.backend == "ray" else "generator_unordered"
            pool = Parallel(n_jobs=jobs, return_as=how, batch_size=1, max_nbytes=None)
            yield from pool(delayed(_numbered)(function, share, position, item) for position, item in items)


def _numbered(function: Callable[[Item], Result], share: int, position: int, item: Item) -> tuple[int, Result]:
    with threads.of_this_process(share):
        return position, function(item)


def _is_death(error: BaseException) -> bool:
    return any(kind.__name__ in _DEAD for kind in type(error).__mro__)


@contextlib.contextmanager
def _engine(backend: str, scheduler: str | None) -> Iterator[None]:
    """joblib's own configuration of a backend. UsageError where the engine isn't installed or doesn't answer."""
    if backend == "loky":
        yield
        return
    from joblib import parallel_config

    with contextlib.ExitStack() as stack:
        try:
            if backend == "dask":
                from dask.distributed import Client

                # The client becomes the current one, which joblib's backend takes.
                stack.enter_context(Client(scheduler, timeout="10s", set_as_default=True))
            else:
                stack.enter_context(_ray(scheduler))
        except ImportError:
            raise UsageError(f"--backend {backend}: not installed; pip install 'npu-perfetto[{backend}]'") from None
        except (OSError, ValueError, ConnectionError) as error:
            raise UsageError(
                f"--scheduler {printable(scheduler)}: no {backend} scheduler answers there ({printable(error, 120)})"
            ) from None
        stack.enter_context(parallel_config(backend=backend))
        yield


@contextlib.contextmanager
def _ray(scheduler: str | None) -> Iterator[None]:
    import ray
    from ray.util.joblib import register_ray

    ray.init(address=scheduler or "auto", log_to_driver=False, logging_level="ERROR")
    try:
        register_ray()
        yield
    finally:
        ray.shutdown()


def check_workers(jobs: int | None, backend: str, scheduler: str | None) -> Workers:
    """Raises UsageError for what can't be."""
    if jobs is not None and jobs < 1:
        raise UsageError("--jobs: at least 1")
    if backend not in BACKENDS:
        raise UsageError(f"--backend: {printable(backend, 40)} is none of {', '.join(BACKENDS)}")
    if scheduler is not None and backend == "loky":
        raise UsageError("--scheduler is for --backend dask or ray")
    if backend == "dask" and scheduler is None:
        raise UsageError("--backend dask needs --scheduler tcp://HOST:PORT")
    return Workers(jobs, backend, scheduler)
