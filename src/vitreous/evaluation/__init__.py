"""How good a model is: rates with intervals, calibration, few-shot and k-NN probes, baselines."""
