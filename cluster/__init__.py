"""The distributed job: dataset, shard plan, driver, Ray actors and the commit protocol."""

# Before any module here imports NumPy: it asks NumPy's BLAS for one thread.
import worker as worker
