"""What a machine without a GPU lacks when it runs SGLang, and nothing else. The lab puts this folder first on
PYTHONPATH; Python imports a module of this name by itself, in every process of the engine. No source of the engine
is edited, and no part of its prefill/decode protocol, queues, aborts, metrics or logs is touched.

The stand-ins (`pdchaos lab list --verbose` names them):

1. `torchvision` and `sgl_kernel`, where they are not installed: empty modules. Any name can be imported from them; a
   call raises. SGLang imports both at the top of many modules, for images and for GPU kernels that a Llama on CPU
   never reaches. (The PyPI build of torchvision does not load beside the CPU build of torch; of sgl_kernel there is no
   CPU build.)
2. NIXL memory type `VRAM`: means ordinary memory (`DRAM`). SGLang says "VRAM" for its KV pool on every device, and
   NIXL refuses to register VRAM where there is none. The transfer itself is NIXL's, over UCX and TCP.
"""  # noqa: D205, the first sentence does not fit in one line

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT = ("torchvision", "sgl_kernel")
NIXL = ("nixl_cu12._api", "nixl_cu13._api")


class _AbsentName(type):
    """A name out of an absent module: good for imports, annotations and base classes, not for calls."""

    def __getattr__(cls, name: str) -> _AbsentName:
        if name.startswith("__"):
            raise AttributeError(name)
        return _AbsentName(f"{cls.__name__}.{name}", (), {})

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise RuntimeError(f"{cls.__name__} was called, but a lab without a GPU has no such thing")

    def __getitem__(cls, _: Any) -> _AbsentName:
        return cls

    def __or__(cls, _: Any) -> _AbsentName:
        return cls

    __ror__ = __or__


class _AbsentModule(ModuleType):
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> _AbsentName:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _AbsentName(f"{self.__name__}.{name}", (), {})
        setattr(self, name, found)
        return found


class _AbsentLoader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is in it."""


class _AbsentFinder(MetaPathFinder):
    """Asked last, so only for what is not installed."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in ABSENT:
            return ModuleSpec(fullname, _AbsentLoader(), is_package=True)
        return None


class _NixlFinder(MetaPathFinder):
    """Asked first; has one statement run when NIXL's agent is made."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, _target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in NIXL else None
        if spec is not None and spec.loader is not None:
            spec.loader = _NixlLoader(spec.loader)
        return spec


class _NixlLoader(Loader):
    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._real.create_module(spec)
        return made

    def exec_module(self, module: Any) -> None:
        self._real.exec_module(module)
        real_init = module.nixl_agent.__init__

        def init(agent: Any, *args: Any, **kwargs: Any) -> None:
            real_init(agent, *args, **kwargs)
            agent.nixl_mems["VRAM"] = agent.nixl_mems["DRAM"]

        module.nixl_agent.__init__ = init


sys.meta_path.append(_AbsentFinder())
sys.meta_path.insert(0, _NixlFinder())
