"""What the scripts behind items share: the time they have, what is missing here, and answers that survive being stopped.

An answer is one JSON object, printed as one line after every part that is done: check.py keeps the last, so that an item that is
stopped keeps what it has found. A part (one run, mostly) is not done again when an unfinished item is asked once more.
"""
import ctypes, json, os, pathlib, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("UDNNMEM_BUILD", ROOT / "build"))
LIBRARY = BUILD / "libudnnmem.so"
SMALL = os.environ.get("GPU_CHECK_SMALL") == "1"  # the rehearsal's device is a CPU
UNTIL = time.monotonic() + float(os.environ.get("GPU_CHECK_SECONDS", 500))


class OutOfTime(Exception):
    """A part was stopped because the item's time was up: it is asked another time."""


def missing(why):
    """Ends the item: it cannot be asked here. One line."""
    print(why, file=sys.stderr)
    sys.exit(77)


def need():
    """Ends the item where there is no library or no card."""
    if not LIBRARY.exists():
        missing(f"{LIBRARY} is not there: run make first")
    try:
        result = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        missing(f"no card: libcuda.so.1 cannot be loaded ({str(error).split(':')[-1].strip()})")
    if result != 0:
        missing(f"no card: cuInit answers {result}")


def time_left():
    return UNTIL - time.monotonic()


class Answer(dict):
    """`left_out` names the parts that there was no time for; a line that is printed before the end has ended = False."""

    def __init__(self):
        super().__init__(parts={}, left_out=[], ended=False)
        try:
            before = json.loads(pathlib.Path(os.environ["GPU_CHECK_PREVIOUS"]).read_text())["answer"]
            self["parts"] = before["parts"]
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def part(self, name, seconds, make):
        """What `make()` gives, now or when it was last asked; None if `seconds` are not left, or were not enough."""
        if name not in self["parts"]:
            try:
                if time_left() < seconds:
                    raise OutOfTime
                self["parts"][name] = make()
            except OutOfTime:
                self["left_out"].append(name)
                return None
            self.tell()
        return self["parts"][name]

    def tell(self):
        print(json.dumps(self), flush=True)

    def end(self, good):
        self["ended"] = True
        self.tell()
        sys.exit(0 if good else 1)
