"""Several cells behind one API: which of them a request goes to, and how the answers of all become one."""
