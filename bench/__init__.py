"""Speed and memory of profkit, HTA and a bare decoder side by side; not installed with profkit."""
