cdef object aligned(Py_ssize_t n, dtype)
cdef void *address(array) except? NULL
