"""What ``graphattn doctor --calibrate`` does: measure this machine and keep what was found."""

import os
from datetime import UTC, datetime

from .output import document, rendered, say, step, table


def calibrate(json: bool, device: str = "cpu") -> None:
    """Measure, keep, print."""
    from ..backends import BACKENDS
    from ..backends.device import check_device
    from ..backends.rates import keep, machine
    from ..bench.calibrate import calibrate as measured

    kind = check_device(device).partition(":")[0]
    with step("measuring this machine; leave it alone for some seconds") as tell:
        measurements = measured(tell, device)
    where = keep(measurements, datetime.now(UTC).isoformat(timespec="seconds"), kind)
    if json:
        document({"command": "doctor", "rates": measurements, "machine": machine(kind), "path": str(where)})
        return
    say("rates: ns per number (a pair or an edge, times heads, times D + D_v); ms per call; training over forward")
    known = {name: {**x.built_in(), **(x.cuda if kind == "cuda" else {})} for name, x in BACKENDS.items()}
    rows = [
        (f"  {backend} {name}", f"{value:.3g}", f"built in {known[backend].get(name, 1.0):.3g}")
        for backend, rates in measurements.items()
        for name, value in rates.items()
    ]
    rendered(table(rows))
    say(f"\nkept in {where}, for this {'processor, torch and number of threads' if kind == 'cpu' else 'GPU and torch'}")
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if busy > 0.6 * (os.cpu_count() or 1):
        say(f"the machine was busy (load {busy:.1f}): measure again when it is not")
