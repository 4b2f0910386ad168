"""Loads compiled programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from .. import settings
from ..checkpoint.parameters import check
from ..core.bindings import binding
from ..core.cuda import context_of
from ..core.drivers import driver_named
from ..core.hal import device, gone, lost, usable, vm_instance
from ..core.rows import Facts
from ..dialect.dtypes import Array
from ..errors import ArtifactError, TargetError, UsageError, runtime_reason
from ..signing import check_digest
from ..targets import backend_spelled, resolve
from ..targets.cpu.host import TILE_LOOPS, missing_features, tiles_refused
from ..targets.cpu.threads.board import HELPER, SETTER
from ..targets.cpu.threads.cost import TASKS_WORK
from ..targets.devices import devices, failure, other_architecture, runtime_uri
from .artifact import Artifact
from .cuda_function import CudaFunction
from .function import EmulatedFunction, Function
from .packed import SCOPE, packed
from .team import Team, team

if TYPE_CHECKING:
    from iree.runtime import HalDevice, ParameterProvider, VmModule

    from ..emulation.program import Emulated, Emulation


def load(
    artifact: Artifact | str | os.PathLike[str],
    *,
    device: str | None = None,
    parameters: Mapping[str, str] | None = None,
    sha256: str | None = None,
    emulate: bool | Emulation = False,
) -> Program:
    """Load a program for calling. Returns a `Program`, whose attributes are the program's functions.

    Args:
        artifact: what `qmlir.compile` returned, or the path of a `.vmfb` that qmlir made.
        device: `vulkan://0`, `local-sync`, ...; default: that of the target. On a CPU, programs with little work
            run on the calling thread (`local-sync`), others on pinned worker threads (`local-task`).
        parameters: weight files by scope, for a program that was compiled with `keep_parameters`.
        sha256: digest of the whole file; a file with another digest is refused (`qmlir.signing.verify` returns the
            digest of a signed file).
        emulate: execute a program for CUDA or ROCm on an emulated device, which needs no GPU, is slow, and
            reports faults that a device does not (docs/emulation.md). `Emulation` has options.

    Raises:
        ArtifactError: a file that is truncated, foreign, damaged, or made for a CPU with features that this one
            lacks.
        TargetError: no such device, or a target that is not emulated.
        UsageError: an artifact of another type, or `emulate` without a C compiler or a package that it needs.
        EmulationError: a kernel of the program's initialisers has a fault (`emulate`).
    """
    if isinstance(artifact, (str, os.PathLike)):
        artifact = Artifact.open(artifact, sha256=sha256)
    elif not isinstance(artifact, Artifact):
        kind = type(artifact)
        raise UsageError(f"cannot load a {kind.__module__}.{kind.__qualname__}; give the path of a .vmfb, or what "
                         "qmlir.compile returned")  # fmt: skip
    elif sha256 is not None:
        check_digest(artifact.vmfb, sha256)
    return Program(artifact, device, parameters or {}, emulate)


class Program:
    """A loaded program: its functions are attributes, as in `program.main(x)`.

    A function takes arrays of numpy, torch or DLPack and returns one array, or a tuple of several, of the same kind. It
    may be called from several threads. A call raises InputError for arguments that do not fit the signature or values
    that the program refuses, TargetError when the device fails or has too little memory, and EmulationError on an
    emulated device.

    On a CUDA device the program reads torch tensors of that device in place, after torch's current stream is done with
    them. A call with such a tensor returns tensors of that device, which are complete. Other arrays are copied to the
    device. Tensors of another CUDA device raise InputError.
    """

    def __init__(
        self,
        artifact: Artifact,
        where: str | None,
        parameters: Mapping[str, str],
        emulate: bool | Emulation = False,
    ) -> None:
        self.manifest = artifact.manifest
        self._loaded, self._gone = (artifact, where, parameters), gone()
        self._copy: Program | None = None  # this program, loaded again for another device
        self.emulated = self._emulated(where, emulate)
        if self.emulated is None:
            self._check_host()
            driver, uri = self._choose(where)
            self._check_device(driver, uri)
            self._device = self._real_device(driver, uri)
        else:
            driver = self.emulated.target.driver
            self._device = self.emulated.device()
        self.device_driver = driver
        if driver_named(driver).local:
            # The pool keeps a limited number of blocks, and those of other programs do not fit this one.
            self._device.allocator.trim()
        instance = vm_instance()
        name = str(artifact.path or "the program")
        try:
            modules = [binding.create_hal_module(instance, self._device)]
            providers = self._providers(parameters)
            if providers:
                modules.insert(0, binding.create_io_parameters_module(instance, *providers))
            module = binding.VmModule.copy_buffer(instance, artifact.vmfb)
            with nullcontext() if self.emulated is None else self.emulated.running(load=True):
                self._context = binding.VmContext(instance, modules=[*modules, module])
        except (ValueError, RuntimeError, IndexError) as e:
            raise ArtifactError(f"cannot load {name} on {driver}: {self._failure(e)}") from None
        self._team = self._join_team(module)
        kind = Function if self.emulated is None else EmulatedFunction
        if self.emulated is None and context_of(self._device) is not None:
            kind = CudaFunction
        self.functions: dict[str, Function] = {
            n: kind(n, s, self, module.lookup_function(n)) for n, s in artifact.functions.items()
        }

    def _real_device(self, driver: str, uri: str) -> HalDevice:
        try:
            return device(driver, uri)
        except TargetError as e:
            from ..emulation.backends import emulated_targets

            if self.manifest.target not in emulated_targets():
                raise
            raise TargetError(f"{e}; emulate=True (--emulate) executes the program without one") from None

    def _emulated(self, where: str | None, emulate: bool | Emulation) -> Emulated | None:
        """The emulated device to run on, None for a real one."""
        if not emulate:
            return None
        from ..emulation.program import Emulation, emulated

        if where:
            raise UsageError(
                f"emulate cannot be combined with device={where!r}: the program's target names what is emulated"
            )
        return emulated(self.manifest.target, Emulation() if emulate is True else emulate)

    def _again(self, name: str) -> Function:
        """The function `name` once devices are gone; of this program loaded again if its own device is one of them."""
        if usable(self._device):
            self._gone = gone()
            return self.functions[name]
        if self.manifest.has_state:
            raise TargetError(
                "the program has state and was loaded before this process was forked: its threads, and what it holds, "
                "belong to the parent; load it again in this process"
                if driver_named(self.device_driver).has_threads
                else "the program has state, which its device lost with everything else; load it again"
            )
        if self._copy is None or not usable(self._copy._device):
            self._copy = Program(*self._loaded)
        return self._copy.functions[name]

    def _failure(self, e: Exception) -> str:
        """Why a call failed, or the program could not be loaded."""
        reason = runtime_reason(e)
        if not lost(self._device, e):
            return reason
        if self.manifest.has_state:
            return f"{reason}: the device is lost, and the program's state with it; load it again"
        return f"{reason}: the device is lost; the next call, or program, opens it again"

    def _join_team(self, module: VmModule) -> Team | None:
        """Pass the process's team of helper threads to the program's kernels. None if the program cannot use it."""
        if SETTER not in module.function_names:
            return None
        helper = module.lookup_function(SETTER).reflection.get(HELPER)
        found = None if helper is None else team(helper)
        if found is not None:
            address = binding.VmVariantList(1)
            address.push_int(found.address)
            self._context.invoke(module.lookup_function(SETTER), address, binding.VmVariantList(0))
        return found

    def __getattr__(self, name: str) -> Function:
        functions = self.__dict__.get("functions", {})
        if name in functions:
            found: Function = functions[name]
            return found
        raise AttributeError(f"the program has no function {name!r}; it has {', '.join(functions) or 'none'}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]

    def _check_host(self) -> None:
        """Refuse code that this CPU cannot run, instead of dying of an illegal instruction."""
        needed = self.manifest.cpu_features
        if not needed:
            return
        missing = missing_features(needed)
        if missing:
            raise ArtifactError(
                f"the program was compiled for {self.manifest.target}, which has CPU features that this host lacks: "
                f"{', '.join(missing)}; compile it for this host (--target cpu)"
            )
        if TILE_LOOPS.intersection(self._plan_facts("micro")) and (reason := tiles_refused()):
            raise ArtifactError(
                f"the program's kernels use AMX tiles, which the system does not let this process use: {reason}; "
                "compile it without them (the default)"
            )

    def _check_device(self, driver: str, uri: str) -> None:
        """Refuse a program for an architecture that the device does not run. If the devices of the driver differ, also
        refuse one for other subgroup sizes than the device's, because it would add up wrong lanes, or with matrix
        instructions that the device does not have."""
        backend = backend_spelled(self.manifest.target)
        if backend is None or backend.on_host:
            return
        path = uri.partition("://")[2]
        found = [d for d in devices(driver) if d.index == (int(path) if path.isdigit() else 0)]
        known = found and (path.isdigit() or not path)  # other paths are names that only the driver knows
        if known and not backend.devices_differ and (reason := other_architecture(self.manifest.target, found[0])):
            raise TargetError(f"the program was compiled for {self.manifest.target}, but {reason}")
        sizes = self.manifest.capabilities.get("subgroup_sizes")
        if not backend.devices_differ or not sizes:
            return
        matrices = set(self._plan_facts("mma"))
        if not found and (said := failure(driver)):  # the device may be there when it is opened, without this check
            raise TargetError(f"cannot ask the driver {driver!r} for its devices: {said}")
        reason = backend.unfit(found[0], tuple(int(s) for s in sizes), matrices) if found else ""
        if reason:
            raise TargetError(
                f"the program of {self.manifest.target} is not for this device: {reason}; compile it with "
                f"--target {backend.name}, which asks the device"
            )

    def _plan_facts(self, key: str) -> Iterator[str]:
        """The values of `key` in the plans of the program's kernels and in the plans inside them: `mma` is the matrix
        instruction, `micro` the loop of a CPU kernel."""

        def walk(facts: Facts) -> Iterator[str]:
            for name, value in facts.items():
                if isinstance(value, Mapping):
                    yield from walk(value)
                elif name == key:
                    yield str(value)

        for row in self.manifest.strategies:
            for answer in row["answers"]:
                if answer["strategy"] == row["chosen"]:
                    yield from walk(answer.get("plan", {}))

    def _choose(self, where: str | None) -> tuple[str, str]:
        """Driver and URI of the device."""
        driver = self.manifest.driver
        in_caller = driver_named(driver).in_caller
        if where:
            scheme, _, path = where.partition("://")
            if scheme not in (driver, in_caller):
                raise TargetError(f"the program was compiled for {self.manifest.target} ({driver}), not for {where!r}")
            return scheme, where if path else ""
        if in_caller:
            work = self.manifest.task_work
            if settings.threads() == 1 or (work is not None and work < TASKS_WORK):
                return in_caller, ""
        backend = backend_spelled(self.manifest.target)
        if backend is not None and backend.devices_differ:
            return driver, runtime_uri(resolve(self.manifest.target))
        return driver, ""

    def _providers(self, files: Mapping[str, str]) -> list[ParameterProvider]:
        """Parameter providers for the scopes that the program names."""
        providers = []
        for scope in self.manifest.parameters:
            if scope not in files:
                raise UsageError(
                    f"the program needs a parameter file for scope {scope!r}: "
                    f"load(..., parameters={{{scope!r}: path}}), or --parameters {scope}=FILE"
                )
        if unused := sorted(set(files) - set(self.manifest.parameters)):
            raise UsageError(f"the program loads no parameters of scope {unused[0]!r}")
        for scope, path in files.items():
            index = binding.ParameterIndex()
            try:
                index.load(str(Path(path)))
            except (ValueError, RuntimeError, OSError, IndexError) as e:
                raise UsageError(f"cannot read the parameter file {path}: {runtime_reason(e)}") from None
            declared = [p for p in self.manifest.parameter_types if p["scope"] == scope]
            check(dict(index.items()), Path(path), declared)
            providers.append(index.create_provider(scope=scope))
        if self.manifest.packer:
            providers.append(packed(self.manifest.packer, files, run_packer).create_provider(scope=SCOPE))
        return providers


def run_packer(program: bytes, files: Mapping[str, str]) -> dict[str, Array]:
    """Run the program that packs weights. Returns the results of its functions by name."""
    loaded = Program(Artifact.of(program, "what packs the weights"), None, files)
    return {name: function() for name, function in loaded.functions.items()}
