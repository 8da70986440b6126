cdef object aligned(Py_ssize_t n, dtype)
cdef object room(Py_ssize_t n_bytes)
cdef void *address(array) except? NULL
