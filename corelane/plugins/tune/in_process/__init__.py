"""Answer questions in this process, without a service, by the same call as transformers'
question-answering pipeline.
"""
