# Makes regressions.json: least squares with bounds by SciPy, quantile regression by statsmodels. The tests of this package compare ours.
#
#   python3 -m venv /tmp/venv && /tmp/venv/bin/pip install scipy statsmodels && /tmp/venv/bin/python regressions.py > regressions.json
import json

import numpy as np
from scipy.optimize import lsq_linear
from statsmodels.regression.quantile_regression import QuantReg


def bounded(name, a, b, free):
    low = [-np.inf if j in free else 0 for j in range(a.shape[1])]
    x = lsq_linear(a, b, (low, np.inf), method="bvls", tol=1e-14).x
    return {"name": name, "rows": a.tolist(), "values": b.tolist(), "free": free, "coefficients": x.tolist()}


def quantiles(name, a, b):
    fits = {}
    for tau in [0.1, 0.5, 0.9]:
        fits[tau] = QuantReg(b, a).fit(q=tau, max_iter=20000, p_tol=1e-10).params.tolist()
    return {"name": name, "rows": a.tolist(), "values": b.tolist(), "fits": fits}


def main():
    r = np.random.default_rng(1)
    rho = np.linspace(0.1, 0.95, 24)
    queue = np.column_stack([np.ones(24), 1 / (1 - rho), 1 / (1 - rho) ** 2])
    steep = queue @ [2, 3, 0.5] * np.exp(r.normal(0, 0.05, 24))
    linear = queue @ [2, 3, 0] + r.normal(0, 0.4, 24)
    falling = queue @ [30, -2, 0] + r.normal(0, 0.4, 24)
    classes = r.uniform(0, 100, (40, 6))
    use = classes @ [2e-3, 0, 5e-4, -1e-3, 3e-3, 0] + 0.01 + r.normal(0, 0.01, 40)
    least = [
        bounded("all inside", queue, steep, [0]),
        bounded("one at its bound", queue, linear, [0]),
        bounded("two at their bounds", queue, falling, [0]),
        bounded("nothing free", np.column_stack([np.ones(40), classes]), use, []),
        bounded("all free", queue, falling, [0, 1, 2]),
    ]
    x = r.uniform(0, 10, 120)
    line = np.column_stack([np.ones(120), x])
    plane = np.column_stack([np.ones(60), r.uniform(61, 500, 60), r.uniform(5, 40, 60)])
    tails = [
        quantiles("spread grows", line, 5 + 2 * x + x * r.exponential(1, 120)),
        quantiles("limit and load", plane, 100 - 0.1 * plane[:, 1] + 2 * plane[:, 2] + r.gamma(2, 5, 60)),
    ]
    print(json.dumps({"least": least, "quantiles": tails}, separators=(",", ":")).replace('{"name"', '\n{"name"'))


main()
