"""How handlers run on a core: imported if the operator allows it, one thread each, a time limit around each batch."""
