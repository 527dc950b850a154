# Makes trees.json: what scikit-learn's trees are on fixed data. The tests of this package compare ours with them.
#
#   python3 -m venv /tmp/venv && /tmp/venv/bin/pip install scikit-learn && /tmp/venv/bin/python trees.py > trees.json
#
# scikit-learn reads features as 32-bit floats and breaks ties between tests at random. So all values are multiples of 1/64, and data on
# which a tie shows is refused.
import json

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier


def contention(n, seed):
    """Features of an instance under one of five kinds of contention, with a lot of noise."""
    r = np.random.default_rng(seed)
    names = ["connect_ms_p90", "cpu_system_ratio", "cpu_user_ratio", "iowait", "retransmit_rate"]
    # medians by class, in the order of the names
    centres = {
        "cpu": [0.6, 1.6, 0.8, 0.05, 0.5],
        "disk": [0.6, 1.5, 1.1, 0.35, 0.5],
        "memory": [0.7, 1.5, 1.7, 0.06, 0.5],
        "network": [4.0, 1.1, 1.0, 0.05, 4.0],
        "none": [0.8, 1.05, 1.0, 0.04, 1.0],
    }
    classes = sorted(centres)
    y = [classes[i] for i in r.integers(0, 5, n)]
    x = np.array([np.array(centres[c]) * np.exp(r.normal(0, 0.45, 5)) for c in y])
    return names, np.round(x * 64) / 64, y


def nodes(tree):
    """The tree in preorder, the branch above the threshold first."""
    t, out = tree.tree_, []

    def visit(i):
        counts = [int(round(c)) for c in t.value[i][0] * t.n_node_samples[i]]
        if t.children_left[i] < 0:
            out.append({"counts": counts})
            return
        out.append({"feature": int(t.feature[i]), "threshold": float(t.threshold[i]), "counts": counts})
        visit(t.children_right[i])
        visit(t.children_left[i])

    visit(0)
    return out


def fitted(x, y, leaf, alpha, seed=0):
    return DecisionTreeClassifier(min_samples_leaf=leaf, ccp_alpha=alpha, random_state=seed).fit(x, y)


def ties(x, y, leaf):
    """Whether tests of some node are equally good: then the random state shows."""
    return len({json.dumps(nodes(fitted(x, y, leaf, 0, seed))) for seed in range(30)}) > 1


def case(name, names, x, y, tests, leaf):
    path = DecisionTreeClassifier(min_samples_leaf=leaf, random_state=0).cost_complexity_pruning_path(x, y)
    # between the steps of the path, so that rounding decides nothing
    alphas = sorted({float(a) for a in (path.ccp_alphas[:-1] + path.ccp_alphas[1:]) / 2})[:: max(1, len(path.ccp_alphas) // 6)]
    folds = np.zeros(len(y), int)
    for k, (_, held) in enumerate(StratifiedKFold(5, shuffle=True, random_state=1).split(x, y)):
        folds[held] = k
    assert not ties(x, y, leaf), name + ": ties"
    comparable = not any(ties(x[folds != k], np.array(y)[folds != k], leaf) for k in range(5))
    prunings = []
    for alpha in alphas:
        tree = fitted(x, y, leaf, alpha)
        wrong = 0 if comparable else None
        for k in range(5 if comparable else 0):
            rest, held = folds != k, folds == k
            fold = fitted(x[rest], np.array(y)[rest], leaf, alpha)
            wrong += int((fold.predict(x[held]) != np.array(y)[held]).sum())
        prunings.append({
            "alpha": alpha, "nodes": nodes(tree), "predictions": list(tree.predict(tests)), "cross_errors": wrong})
    return {
        "name": name, "min_leaf": leaf, "features": names, "rows": x.tolist(), "classes": list(y),
        "tests": tests.tolist(), "nodes": nodes(fitted(x, y, leaf, 0)), "folds": folds.tolist(),
        "path": {"alphas": [float(a) for a in path.ccp_alphas], "costs": [float(c) for c in path.impurities]},
        "prunings": prunings,
    }


def main():
    _, tests, _ = contention(60, 1)
    iris = load_iris()
    kinds = [str(iris.target_names[i]) for i in iris.target]
    cases = [
        case("leaves of 5", *contention(240, 5), tests, 5),
        case("leaves of 8", *contention(240, 7), tests, 8),
        case("leaves of 20", *contention(240, 7), tests, 20),
    ]
    sets = {"iris": {"features": iris.feature_names, "rows": iris.data.tolist(), "classes": kinds}}
    print(json.dumps({"cases": cases, "sets": sets}, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('"sets"', '\n"sets"'))


main()
