"""Loading and calling compiled programs."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import settings
from .arrays import to_numpy, to_torch
from .artifact import Artifact
from .dialect.dtypes import DTYPES, Array, from_numpy, is_sub_byte, restored, stored_codes
from .emulation import is_emulated
from .errors import ArtifactError, InputError, TargetError, UsageError, runtime_reason
from .spec import Signature, TensorSpec

if TYPE_CHECKING:
    from .emulation.program import Emulated, Emulation

_lock = threading.RLock()
_kept: list[Any] = []
_devices: dict[tuple[str, str], Any] = {}
_instance: Any = None
_flags_set = False
_forks = 0  # between the process that imported this module and this one


def _binding() -> Any:
    from iree.runtime import _binding

    return _binding


def _vm_instance() -> Any:
    global _instance
    with _lock:
        if _instance is None:
            # Devices live as long as the process; the bindings would report them as leaks at its end.
            _binding().disable_leak_checker()
            _instance = _binding().VmInstance()
        return _instance


def keep(*objects: Any) -> None:
    """Never destroy these devices and drivers, in this process or in its forks.

    IREE 3.13's devices have a thread. When the child of a fork destroys one, as Python does at the end of a process, it
    waits forever for a thread that only its parent has.
    """
    with _lock:
        if not _kept and hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
            os.register_at_fork(after_in_child=_forked)
        _kept.extend(objects)


def _forked() -> None:
    global _lock, _forks
    _lock = threading.RLock()  # whoever held it is not here
    _forks += 1
    for key in [k for k in _devices if k[0] == "local-task"]:
        del _devices[key]  # its threads are the parent's
    for thing in _kept:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def device(driver: str, uri: str = "") -> Any:
    """The device of a driver, made once a process.

    Raises:
        TargetError: when the driver is missing or has no device.
    """
    global _flags_set
    with _lock:
        if (driver, uri) in _devices:
            return _devices[driver, uri]
        if is_emulated(driver):
            raise TargetError(
                f"this process emulates the driver {driver!r}: load programs for a real device in another process"
            )
        b = _binding()
        if driver == "local-task" and not _flags_set:
            b.parse_flags(_topology(settings.threads(), settings.cpus()))
            _flags_set = True
        try:
            made = b.create_hal_driver(driver)  # a cached one would be the parent's in the child of a fork
            found = _create(made, uri, driver.startswith("local"))
        except (RuntimeError, ValueError) as e:
            raise TargetError(f"no device for the driver {driver!r}: {runtime_reason(e)[:200]}") from None
        keep(made, found)
        _devices[driver, uri] = found
        return found


def _topology(threads: int, cpus: Sequence[int]) -> str:
    """IREE's flag for the worker threads of `local-task`.

    IREE's default leaves several workers on one CPU for long, so a process that uses all of its CPUs pins one worker to
    each. A process that uses fewer than it may does not pin them: another one would choose the same CPUs. Its affinity
    mask (`taskset`, a container's CPU set) says which CPUs it is to have.
    """
    if threads >= len(cpus) and hasattr(os, "sched_setaffinity"):
        return f"--task_topology_cpu_ids={','.join(map(str, cpus))}"
    return f"--task_topology_group_count={min(threads, len(cpus))}"


def emulated_device(driver: str, number: int) -> Any:
    """An emulated driver's device, made once a process."""
    with _lock:
        key = (driver, f"emulated:{number}")
        if key not in _devices:
            made = _binding().get_cached_hal_driver(driver)
            found = made.create_device(made.query_available_devices()[number]["device_id"])
            keep(made, found)
            _devices[key] = found
        return _devices[key]


# Results, intermediate tensors and copied arguments come from a pool: IREE's own allocator clears memory that is then
# overwritten, and asks the system for large blocks anew in every call. Free blocks of a size that was used before are
# kept while all blocks together take no more than this.
_POOL = "caching:*=*;128mib;64"


def _create(driver: Any, uri: str, local: bool) -> Any:
    """A device by `driver://number`, by a URI of IREE's own, or the default one."""
    path = uri.partition("://")[2]
    if local and not path:
        return driver.create_default_device(allocators=[_POOL])
    if path.isdigit():
        known = driver.query_available_devices()
        if int(path) >= len(known):
            raise ValueError(f"there is no {uri}; devices: {len(known)}")
        return driver.create_device(known[int(path)]["device_id"])
    return driver.create_device_by_uri(uri) if path else driver.create_default_device()


def reflection(data: bytes, name: str, key: str) -> str | None:
    """A reflection attribute of a module's functions, None when none has it."""
    b = _binding()
    try:
        module = b.VmModule.copy_buffer(_vm_instance(), data)
    except (ValueError, RuntimeError) as e:
        raise ArtifactError(f"{name} is no IREE module: {str(e).splitlines()[0].split(';')[-1].strip()}") from None
    for function in module.function_names:
        if not function.startswith("_"):
            found = module.lookup_function(function).reflection.get(key)
            if found is not None:
                return str(found)
    return None


def load(
    artifact: Artifact | str | os.PathLike[str],
    *,
    device: str | None = None,
    parameters: Mapping[str, str] | None = None,
    sha256: str | None = None,
    emulate: bool | Emulation = False,
) -> Program:
    """Load a program for calling.

    Args:
        artifact: what `qmlir.compile` returned, or the path of a `.vmfb` that qmlir made.
        device: `vulkan://0`, `local-sync`, ...; default: what the target names. On a CPU, programs with little
            work run on the calling thread (`local-sync`), others on pinned worker threads (`local-task`).
        parameters: weight files by scope, for a program that was compiled with its parameters kept apart.
        sha256: of the whole file: another file is refused (`qmlir.signing.verify` returns that of a signed one).
        emulate: execute a program for CUDA or ROCm on an emulated device, which needs no GPU, is slow, and checks
            what a device does not (docs/emulation.md). `Emulation` has options.

    Raises:
        ArtifactError: a file that is truncated, foreign, damaged, or made for a CPU with features that this one
            lacks.
        TargetError: no such device, or a target that is not emulated.
        UsageError: `emulate` without a C compiler or a package that it needs.
        EmulationError: an initialiser of the program does what no kernel may do (`emulate`).
    """
    if not isinstance(artifact, Artifact):
        artifact = Artifact.open(artifact, sha256=sha256)
    elif sha256 is not None:
        from .signing import check_digest

        check_digest(artifact.vmfb, sha256)
    return Program(artifact, device, parameters or {}, emulate)


class Program:
    """A loaded program: its functions are attributes (`program.main(x)`)."""

    def __init__(
        self,
        artifact: Artifact,
        where: str | None,
        parameters: Mapping[str, str],
        emulate: bool | Emulation = False,
    ) -> None:
        self.manifest = artifact.manifest
        self._loaded, self._forks = (artifact, where, parameters), _forks
        self.emulated = self._emulated(where, emulate)
        if self.emulated is None:
            self._check_host()
            driver, uri = self._choose(where)
            self._check_device(driver, uri)
            self._device = device(driver, uri)
        else:
            driver = self.emulated.target.driver
            self._device = self.emulated.device()
        self.device_driver = driver
        if driver.startswith("local"):
            self._device.allocator.trim()  # the pool keeps so many blocks, and those of other programs fit none here
        b = _binding()
        instance = _vm_instance()
        name = str(artifact.path or "the program")
        try:
            modules = [b.create_hal_module(instance, self._device)]
            providers = self._providers(parameters)
            if providers:
                modules.insert(0, b.create_io_parameters_module(instance, *providers))
            module = b.VmModule.copy_buffer(instance, artifact.vmfb)
            with nullcontext() if self.emulated is None else self.emulated.running(load=True):
                self._context = b.VmContext(instance, modules=[*modules, module])
        except (ValueError, RuntimeError, IndexError) as e:
            raise ArtifactError(f"cannot load {name} on {driver}: {runtime_reason(e)}") from None
        self._team = self._join_team(module)
        kind = Function if self.emulated is None else EmulatedFunction
        self.functions: dict[str, Function] = {
            n: kind(n, s, self, module.lookup_function(n)) for n, s in artifact.functions.items()
        }

    def _emulated(self, where: str | None, emulate: bool | Emulation) -> Emulated | None:
        """The emulated device to run on, None for a real one."""
        if not emulate:
            return None
        from .emulation.program import Emulation, emulated

        if where:
            raise UsageError(f"emulate does not go with device={where!r}: the program's target names what is emulated")
        return emulated(self.manifest, Emulation() if emulate is True else emulate)

    def _load_again(self) -> None:
        """In the child of a fork: the threads that the program ran on are its parent's, and it would wait for them."""
        if self.device_driver == "local-task":
            if self.manifest.get("has_state"):
                raise TargetError(
                    "the program has state and was loaded before this process was forked: its threads, and what it "
                    "holds, belong to the parent; load it again in this process"
                )
            again = Program(*self._loaded)
            for name, function in self.functions.items():
                function.__dict__.update(again.functions[name].__dict__, _program=self)
            self.__dict__.update(again.__dict__, functions=self.functions)
        self._forks = _forks

    def _join_team(self, module: Any) -> Any:
        """Tell the program's kernels of the process's helper threads; None when it has no use for them."""
        from .targets.cpu.threads.board import HELPER, SETTER
        from .targets.cpu.threads.team import team

        if SETTER not in module.function_names:
            return None
        found = team(module.lookup_function(SETTER).reflection.get(HELPER))
        if found is not None:
            b = _binding()
            address = b.VmVariantList(1)
            address.push_int(found.address)
            self._context.invoke(module.lookup_function(SETTER), address, b.VmVariantList(0))
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
        needed = self.manifest.get("cpu_features") or []
        if not needed or not str(self.manifest["target"]).startswith("cpu"):
            return
        from .targets.cpu.host import TILE_LOOPS, missing_features, tiles_refused

        missing = missing_features(needed)
        if missing:
            raise ArtifactError(
                f"the program was compiled for {self.manifest['target']}, which has CPU features that this host lacks: "
                f"{', '.join(missing)}; compile it for this host (--target cpu)"
            )
        if TILE_LOOPS.intersection(self._plan_facts("micro")) and (reason := tiles_refused()):
            raise ArtifactError(
                f"the program's kernels use AMX tiles, which the system does not let this process use: {reason}; "
                "compile it without them (the default)"
            )

    def _check_device(self, driver: str, uri: str) -> None:
        """Refuse a Vulkan program whose subgroups are not the device's, which would add up wrong lanes, or whose
        cooperative matrices the device has not."""
        sizes = self.manifest.get("capabilities", {}).get("subgroup_sizes")
        if driver != "vulkan" or not sizes:
            return
        from .targets.devices import devices, failure
        from .targets.vulkan.description import unfit

        path = uri.partition("://")[2]
        found = [d for d in devices(driver) if d.index == (int(path) if path.isdigit() else 0)]
        matrices = set(self._plan_facts("mma"))
        if not found and (said := failure(driver)):  # it may be there at the next call, unseen
            raise TargetError(f"cannot ask the driver {driver!r} for its devices: {said}")
        reason = unfit(found[0], tuple(int(s) for s in sizes), matrices) if found else ""
        if reason:
            raise TargetError(
                f"the program of {self.manifest['target']} is not for this device: {reason}; compile it with "
                "--target vulkan, which asks the device"
            )

    def _plan_facts(self, key: str) -> Iterator[str]:
        """What the plans of the program's kernels, and the plans inside them, say of `key`: `mma` is the matrix
        instruction, `micro` the loop of a CPU kernel."""

        def walk(facts: Mapping[str, Any]) -> Iterator[str]:
            for name, value in facts.items():
                if isinstance(value, Mapping):
                    yield from walk(value)
                elif name == key:
                    yield str(value)

        for row in self.manifest.get("strategies", []):
            for answer in row["answers"]:
                if answer["strategy"] == row["chosen"]:
                    yield from walk(answer.get("plan", {}))

    def _choose(self, where: str | None) -> tuple[str, str]:
        """Driver and URI of the device."""
        driver = str(self.manifest["driver"])
        if where:
            scheme, _, path = where.partition("://")
            if scheme != driver and not (driver == "local-task" and scheme == "local-sync"):
                raise TargetError(
                    f"the program was compiled for {self.manifest['target']} ({driver}), not for {where!r}"
                )
            return scheme, where if path else ""
        if driver == "local-task":
            from .targets.cpu.threads.cost import TASKS_WORK

            work = self.manifest.get("task_work")
            if settings.threads() == 1 or (work is not None and work < TASKS_WORK):
                return "local-sync", ""
        if driver == "vulkan":
            from .targets import resolve
            from .targets.devices import runtime_uri

            return driver, runtime_uri(resolve(str(self.manifest["target"])))
        return driver, ""

    def _providers(self, files: Mapping[str, str]) -> list[Any]:
        """Parameter providers for the scopes that the program names."""
        from .parameters import check

        providers = []
        for scope in self.manifest.get("parameters", []):
            if scope not in files:
                raise UsageError(
                    f"the program needs a parameter file for scope {scope!r}: "
                    f"load(..., parameters={{{scope!r}: path}}), or --parameters {scope}=FILE"
                )
        if unused := sorted(set(files) - set(self.manifest.get("parameters", []))):
            raise UsageError(f"the program loads no parameters of scope {unused[0]!r}")
        for scope, path in files.items():
            index = _binding().ParameterIndex()
            try:
                from iree.runtime import io as rt_io  # registers the loaders of the formats

                del rt_io
                index.load(str(Path(path)))
            except (ValueError, RuntimeError, OSError, IndexError) as e:
                raise UsageError(f"cannot read the parameter file {path}: {runtime_reason(e)}") from None
            declared = [p for p in self.manifest.get("parameter_types", []) if p["scope"] == scope]
            check(dict(index.items()), Path(path), declared)
            providers.append(index.create_provider(scope=scope))
        if self.manifest.get("packer"):
            from .packed import SCOPE, packed

            providers.append(packed(self.manifest["packer"], files).create_provider(scope=SCOPE))
        return providers


# What passes/lower/blocks.py says of ids; a program cannot put a number into its message.
_OUTSIDE = re.compile(r"an id of (\w+) \(argument (\d+)\) is outside \[0, (\d+)\)")


def with_position(reason: str, args: tuple[Any, ...]) -> str:
    """The reason with the first id that is outside its range, where the arguments show it."""
    found = _OUTSIDE.search(reason)
    if found is None or int(found[2]) >= len(args):
        return reason
    ids = to_numpy(args[int(found[2])], found[1])
    bad = np.argwhere((ids < 0) | (ids >= int(found[3])))
    if not len(bad):
        return reason
    position = tuple(bad[0].tolist())
    told = f"{found[1]}[{', '.join(map(str, position))}] = {ids[position]} is outside [0, {found[3]})"
    return reason.replace(found[0], told)


_WORTH_LENDING = 8 << 10  # bytes: the least argument that is copied in no less time than it takes to wrap it


class Function:
    """A function of a loaded program."""

    def __init__(self, name: str, signature: Signature, program: Program, vm_function: Any) -> None:
        b = _binding()
        self.name, self.signature = name, signature
        self._program, self._function = program, vm_function
        self._context, self._device = program._context, program._device
        self._allocator = program._device.allocator
        self._list, self._view = b.VmVariantList, b.HalBufferView
        self._memory = int(b.MemoryType.DEVICE_LOCAL)
        self._usage = int(b.BufferUsage.DEFAULT) | (
            int(b.BufferUsage.MAPPING) if program.device_driver.startswith("local") else 0
        )
        # What a call needs to know of each argument and result, found out once.
        self._inputs = [_input(b, spec) for _, spec in signature.inputs]
        self._outputs = [_output(spec) for spec in signature.outputs]
        self._same = tuple(
            (a.argument, a.axis, a.other, a.other_axis, None if a.size.plain else a.size) for a in signature.agreements
        )
        self._local = program.device_driver.startswith("local")
        self._borrowed = frozenset(program.manifest.get("borrowed", {}).get(name, ()) if self._local else ())
        self.__doc__ = f"{name}{signature}"

    def __repr__(self) -> str:
        return f"<qmlir function {self.name}{self.signature}>"

    def __call__(self, *args: Any) -> Any:
        """Call with numpy arrays, torch tensors or anything with `__dlpack__`; results are torch tensors when an
        argument is one, else numpy arrays.

        Raises:
            InputError: wrong count, shape or dtype, with the argument's name; or what the program itself refuses.
            TargetError: in the child of a fork, of a program with state on worker threads.
        """
        if len(args) != len(self._inputs):
            names = ", ".join(f"{n}: {s}" for n, s in self.signature.inputs)
            raise InputError(f"{self.name} takes {len(self._inputs)} arguments ({names}), but got {len(args)}")
        if self._program._forks != _forks:
            self._program._load_again()
        inputs = self._list(len(args))
        torch_result = False
        arrays = args
        for i, arg in enumerate(args):
            if type(arg) is not np.ndarray:
                torch_result = torch_result or type(arg).__module__ == "torch"
                arg = to_numpy(arg, self.signature.inputs[i][0])
                arrays = (*arrays[:i], arg, *arrays[i + 1 :])
            inputs.push_ref(self._buffer(i, arg))
        for one, axis, other, other_axis, size in self._same:
            wanted = arrays[one].shape[axis]
            if arrays[other].shape[other_axis] != (wanted if size is None else size.of(wanted)):
                raise self._disagreement(arrays)
        outputs = self._list(len(self._outputs))
        try:
            self._context.invoke(self._function, inputs, outputs)
        except (RuntimeError, ValueError) as e:
            raise InputError(f"{self.name} failed: {with_position(runtime_reason(e), args)}") from None
        results = [self._result(outputs, i) for i in range(len(self._outputs))]
        if torch_result:
            results = [to_torch(r) for r in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _disagreement(self, arrays: tuple[Any, ...]) -> InputError:
        """The error of the first two arguments whose sizes have to agree and do not."""
        names = [name for name, _ in self.signature.inputs]
        for a in self.signature.agreements:
            has, known = arrays[a.other].shape, arrays[a.argument].shape
            if has[a.other_axis] != (wanted := a.size.of(known[a.axis])):
                form = "" if a.size.plain else f", {a.size} with"
                return InputError(
                    f"argument {a.other} ({names[a.other]!r}) of {self.name} must be "
                    f"{self.signature.inputs[a.other][1]}, but has shape {_shape_text(has)}: axis {a.other_axis} has "
                    f"{has[a.other_axis]} elements and must have {wanted}{form}, as axis {a.axis} of argument "
                    f"{a.argument} ({names[a.argument]!r}: {_shape_text(known)})"
                )
        raise AssertionError("every agreement holds")

    def _buffer(self, i: int, array: Array) -> Any:
        """A device buffer with the argument's data, checked against the signature."""
        want, shape, element, rank, fixed = self._inputs[i]
        if array.shape == shape and array.dtype == want and array.flags.c_contiguous:  # as most arguments are
            if i in self._borrowed and array.nbytes >= _WORTH_LENDING and array.flags.writeable:
                lent = self._allocator.import_host_allocation(array, self._memory, self._usage)
                return self._view(lent, shape, element)
            return self._allocator.allocate_buffer_copy(self._memory, self._usage, self._device, array, element)
        if array.dtype != want:
            dtype = self.signature.inputs[i][1].dtype
            array = restored(array, dtype)
            if is_sub_byte(array.dtype) and from_numpy(array.dtype) == dtype:
                array = stored_codes(array)
        if array.dtype != want:
            raise self._refused(i, f"dtype {_dtype_name(array.dtype)}")
        sizes = array.shape
        if len(sizes) != rank:
            raise self._refused(i, f"shape {_shape_text(sizes)}")
        for axis, size in fixed:
            if sizes[axis] != size:
                raise self._refused(i, f"shape {_shape_text(sizes)}")
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        if want.kind == "V" or want.name not in _PLAIN:
            array = array.view(f"u{want.itemsize}")  # small floats have no buffer protocol
        if array.size == 0:
            return self._empty(array.shape, element)
        return self._allocator.allocate_buffer_copy(self._memory, self._usage, self._device, array, element)

    def _refused(self, i: int, has: str) -> InputError:
        name, spec = self.signature.inputs[i]
        return InputError(f"argument {i} ({name!r}) of {self.name} must be {spec}, but has {has}")

    def _empty(self, shape: tuple[int, ...], element: int) -> Any:
        buffer = self._allocator.allocate_buffer(self._memory, self._usage, 1)
        return self._view(buffer, list(shape), element)

    def _result(self, outputs: Any, i: int) -> Array:
        shape, dtype, raw = self._outputs[i]
        view = outputs.get_as_object(i, self._view)
        if shape is None:
            shape = tuple(view.shape)
        if 0 in shape:
            return np.zeros(shape, dtype)
        if self._local:
            array = np.ndarray(shape, raw, view.map())  # whatever is cut from it keeps the mapping too
        else:
            array = self._staged(view, shape, raw)
        return array if raw is dtype else array.view(dtype)

    def _staged(self, view: Any, shape: tuple[int, ...], raw: np.dtype[Any]) -> Array:
        """Copy to the host through a staging buffer: the direct way fails on Vulkan devices that cannot import
        host memory at the alignment of numpy's buffers (seen with IREE 3.12 and 3.13)."""
        b = _binding()
        source = view.get_buffer()
        staging = self._allocator.allocate_buffer(
            int(b.MemoryType.HOST_LOCAL) | int(b.MemoryType.DEVICE_VISIBLE),
            int(b.BufferUsage.TRANSFER_TARGET) | int(b.BufferUsage.MAPPING_SCOPED),
            source.byte_length(),
        )
        semaphore = self._device.create_semaphore(0)
        done = b.HalFence.create_at(semaphore, 1)
        self._device.queue_copy(
            source, staging, wait_semaphores=b.HalFence.create_at(semaphore, 0), signal_semaphores=done
        )
        done.wait()
        return np.array(staging.map().asarray(shape, raw))


class EmulatedFunction(Function):
    """A function of a program on an emulated device."""

    def __call__(self, *args: Any) -> Any:
        """As `Function.__call__`.

        Raises:
            EmulationError: a kernel does what no kernel may do, or what the device would refuse.
        """
        call = super().__call__
        with self._emulated.running():
            return self._emulated.driver.interruptible(lambda: call(*args))

    @property
    def _emulated(self) -> Emulated:
        found = self._program.emulated
        assert found is not None
        return found

    def _buffer(self, i: int, array: Array) -> Any:
        view = super()._buffer(i, array)
        name, spec = self.signature.inputs[i]
        self._emulated.driver.name_allocation(name, spec.dtype, tuple(view.shape), self._inputs[i][0].itemsize)
        return view

    def _result(self, outputs: Any, i: int) -> Array:
        found = super()._result(outputs, i)
        dtype = self.signature.outputs[i].dtype
        self._emulated.driver.check_read(f"result {i} of {self.name}", dtype, found.shape, found.itemsize)
        return found


_Input = tuple[np.dtype[Any], tuple[int | None, ...] | None, int, int, tuple[tuple[int, int], ...]]


def _input(b: Any, spec: TensorSpec) -> _Input:
    """Dtype, the one shape whose arrays can be handed in as they are (None when there is no such shape), the HAL's
    element type, the number of axes, and the axes of a static size with it."""
    want = DTYPES[spec.dtype].numpy
    easy = want.name in _PLAIN and None not in spec.shape and 0 not in spec.shape
    fixed = tuple((axis, size) for axis, size in enumerate(spec.shape) if size is not None)
    return want, spec.shape if easy else None, _element_type(b, spec.dtype), spec.rank, fixed


def _shape_text(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _output(spec: TensorSpec) -> tuple[tuple[int, ...] | None, np.dtype[Any], np.dtype[Any]]:
    """Shape (None when some size is dynamic), dtype, and the plain dtype with the same bits."""
    dtype = DTYPES[spec.dtype].numpy
    static = tuple(s for s in spec.shape if s is not None)
    return (
        static if len(static) == len(spec.shape) else None,
        dtype,
        dtype if dtype.name in _PLAIN else np.dtype(f"u{dtype.itemsize}"),
    )


# numpy types that the runtime's buffer protocol takes as they are.
_PLAIN = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64"})

_ELEMENT = {
    "i16": "SINT_16", "u16": "UINT_16", "i32": "SINT_32", "u32": "UINT_32", "i64": "SINT_64", "bool": "BOOL_8",
    "f32": "FLOAT_32", "f64": "FLOAT_64", "f16": "FLOAT_16", "bf16": "BFLOAT_16",
    "e4m3": "FLOAT_8_E4M3_FN", "e5m2": "FLOAT_8_E5M2",
    "e4m3fnuz": "FLOAT_8_E4M3_FNUZ", "e5m2fnuz": "FLOAT_8_E5M2_FNUZ", "e8m0": "FLOAT_8_E8M0_FNU",
}  # fmt: skip


def _element_type(b: Any, dtype: str) -> int:
    """The HAL element type of a dtype. IREE's programs are signless and accept either sign of an integer."""
    name = _ELEMENT.get(dtype, "INT_8")
    if name.startswith(("SINT", "UINT")):
        name = name[1:]
    return int(getattr(b.HalElementType, name))


def _dtype_name(dtype: np.dtype[Any]) -> str:
    try:
        return from_numpy(dtype)
    except KeyError:
        return str(dtype)
