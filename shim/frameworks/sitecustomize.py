"""Put on PYTHONPATH by libudnnmem.so for a Python that has CuPy: when the program imports it, its arrays come from the
stream-ordered allocator instead of CuPy's own pool, so that each is a buffer of its own. What the program sets itself
later stands. Another sitecustomize that would have been found is run as ever."""
import _thread, sys

_looking = _thread._local()  # a thread that asks the other finders is not answered here


class _AfterCuPy:
    """Finds nothing; notes that CuPy is imported, and acts when it has been."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "cupy" or getattr(_looking, "on", False):
            return None
        import importlib.util
        _looking.on = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            _looking.on = False
        run = getattr(getattr(spec, "loader", None), "exec_module", None)
        if run is None:
            return spec

        def exec_module(module):
            run(module)
            if _AfterCuPy in sys.meta_path:
                sys.meta_path.remove(_AfterCuPy)
            try:
                module.cuda.set_allocator(module.cuda.MemoryAsyncPool().malloc)
            except Exception as error:  # no device, no driver, another CuPy: it goes on with its own
                if sys.stderr:  # print() takes stdout without one
                    print(f"udnnmem: CuPy keeps its own pool: {error}", file=sys.stderr)

        spec.loader.exec_module = exec_module
        return spec


def _run_next():
    import importlib.machinery, importlib.util, os
    here = os.path.dirname(os.path.abspath(__file__))
    path = [p for p in sys.path if os.path.abspath(p) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec and spec.loader:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, _AfterCuPy)
_run_next()
