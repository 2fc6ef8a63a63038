"""Fine-tuning: questions with known answers in, a model's folder out. A run can be killed at any time.

Beside ``compile`` no other room loads a network as `transformers` has it. A killed run goes on to the same weights.
