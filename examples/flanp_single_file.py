"""FLANP with FedGATE (Algorithms 1 and 2 of the paper) in plain NumPy loops, to be read beside it.

Run it: it trains linear regression on 32 clients whose speeds differ, with FLANP and with
FedGATE on all clients from the start, and prints the virtual time that each needs.

    python examples/flanp_single_file.py

Letters, as in the paper: w global model, n participants, N clients, s samples of each client,
T[i] seconds per local step of client i, tau local steps per round, eta and gamma step sizes of the
clients and of the server, delta[i] gradient tracking, Delta[i] accumulated local directions,
mu strong convexity, c the constant of the statistical accuracy V_ns = c / (n s).
"""

import numpy as np


def flanp(grad, data, T, w, *, eta, gamma, tau, n0, growth, mu, c, rows=None, max_rounds=10_000):
    """Return the final model and one (n, w, virtual time) for each round.

    grad(w, x, y) is the gradient of the mean loss; data holds (x, y) of each client;
    rows(i, k, t) are the samples of client i's local step t in round k (None: all of them).
    """
    fast_to_slow = sorted(range(len(T)), key=lambda i: (T[i], i))
    N, n, rounds, time, history = len(T), n0, 0, 0.0, []
    while True:
        nodes = fast_to_slow[:n]
        S = sum(len(data[i][1]) for i in nodes)  # n s samples
        p = {i: len(data[i][1]) / S for i in nodes}  # 1/n where all hold equally many
        delta = {i: np.zeros_like(w) for i in nodes}  # reset gradient tracking
        while norm_sq(grad_L_n(grad, data, p, w)) > 2 * mu * c / S and rounds < max_rounds:
            Delta = {}
            for i in nodes:
                w_i = w.copy()
                for t in range(tau):
                    x, y = data[i]
                    if rows is not None:
                        x, y = x[rows(i, rounds, t)], y[rows(i, rounds, t)]
                    d_i = grad(w_i, x, y) - delta[i]
                    w_i = w_i - eta * d_i
                Delta[i] = (w - w_i) / eta
            mean_Delta = sum(p[i] * Delta[i] for i in nodes)
            for i in nodes:
                delta[i] = delta[i] + (Delta[i] - mean_Delta) / tau
            w = w - eta * gamma * mean_Delta
            rounds += 1
            time += max(tau * T[i] for i in nodes)
            history.append((n, w, time))
        if n == N:  # the paper's `while n <= N` would go on for ever
            return w, history
        n = min(max(n + 1, int(growth * n)), N)


def grad_L_n(grad, data, p, w):
    """Return the gradient of L_n, the mean loss over all samples of the participants."""
    return sum(p_i * grad(w, *data[i]) for i, p_i in p.items())


def norm_sq(v):
    return float(np.sum(v * v))


def grad_linear(w, x, y):
    """Return the gradient of |x w - y|^2 / (2 s)."""
    return x.T @ (x @ w - y) / len(y)


def main():
    rng = np.random.default_rng(0)
    N, s, d, kappa, sigma = 32, 50, 10, 10.0, 1.0
    w_true = rng.standard_normal(d)
    scale = np.sqrt(np.geomspace(1 / kappa, 1, d))
    data = []
    for _ in range(N):
        x = scale * rng.standard_normal((s, d))
        data.append((x, x @ w_true + sigma * rng.standard_normal(s)))
    T = rng.exponential(size=N)
    constants = dict(mu=1 / kappa, c=d * sigma**2 / 2)
    settings = dict(eta=0.1, gamma=1.0, tau=10, growth=2, **constants)
    times = {}
    for name, n0 in (("FLANP", 1), ("FedGATE", N)):
        w, history = flanp(grad_linear, data, T, np.zeros(d), n0=n0, **settings)
        times[name] = history[-1][2]
        error = np.linalg.norm(w - w_true)
        print(
            f"{name:8} {len(history):4} rounds, time {times[name]:8.1f}, |w - w_true| {error:.3f}"
        )
        for n in sorted({n for n, _, _ in history}):
            print(f"         n = {n:3}: {sum(m == n for m, _, _ in history):3} rounds")
    print(f"FLANP is {times['FedGATE'] / times['FLANP']:.1f} times as fast")


if __name__ == "__main__":
    main()
