"""What is a state of a GPU worth for what people will ask next? Our own policies, `priced` and `auto`, and the plans they go by.

`chart` has the states of a kind of GPU, `packing` the bound, `value` the decision problem, `rehearsal` the traffic on which candidates
compete, `plan` the choice, `ranking` the decision by it.
"""
