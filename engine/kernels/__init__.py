"""Small CPU operators of the step, each one pass over memory: norms, rotation, gating, row quantisation, attention of single rows.

Torch computes each of these as several operators whose fixed costs are most of a decode step on a CPU. They are compiled with numba
(LLVM, no compiler on the machine), cached on disk, and run on torch's own OpenMP threads, so that no second pool fights for the cores.

    primitives.py   addresses, bfloat16, exp: what the kernels are written in
    rows.py         kernels over rows: add and normalise, gate, quantise, rotate, add a bias
    attention.py    the kernel of paged attention
    vectors.py      its inner loops as explicit vectors
    integer_product.py  products of rows with integer weights
    four_bit.py     its weights of four bits
    eight_bit.py    and of eight
    integer_vectors.py  what these three are written in
    sampling.py     kernels over rows of logits: masks, masses, the draw
    program.py      runs a list of kernels in one call
    team.py         runs a program on torch's threads
    operators.py    kernels as functions of tensors, and recordings of them; what others import
    cuda/           the same for CUDA, as Triton kernels

Every operator computes a row by itself, in one order: a row's result does not depend on its neighbours or on the number of threads.
"""
