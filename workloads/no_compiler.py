"""Import it before torch: its compiler, which optimizers and the profiler import, costs each process two seconds.

One that is loaded stays, as in a forked process, and WITH_DYNAMO=1 keeps it.
"""

import os
import sys
from types import ModuleType, SimpleNamespace

if not os.environ.get("WITH_DYNAMO") and "torch._dynamo" not in sys.modules:
    dynamo, inductor, config = (ModuleType(f"torch.{name}") for name in ("_dynamo", "_inductor", "_inductor.config"))
    dynamo.disable = lambda function, *_, **__: function
    dynamo.graph_break = lambda *_, **__: None
    inductor.config, config.triton = config, SimpleNamespace(cudagraphs=False)
    sys.modules.update({module.__name__: module for module in (dynamo, inductor, config)})
