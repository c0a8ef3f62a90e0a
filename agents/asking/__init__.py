"""Whether to ask the user about a task, and what: `AskPolicy`, and the policies of the clarifier.

`ask_policy` has the protocol, its values, and the chain of several. `first_look` judges a task; `weights`,
`memory` and `copied_questions` weigh what the model would ask; `choice` picks from that, and `effect` is a
second look at what was picked.
"""

from upcall.agents.asking.ask_policy import (
    AskPolicy,
    AskVerdict,
    ClarifierTask,
    PolicyChain,
    Proposal,
    WeighedCandidate,
)
from upcall.agents.asking.copied_questions import CopiedQuestions
from upcall.agents.asking.first_look import FirstLook
from upcall.agents.asking.memory import Memory
from upcall.agents.asking.weights import Weights

__all__ = [
    "AskPolicy",
    "AskVerdict",
    "ClarifierTask",
    "CopiedQuestions",
    "FirstLook",
    "Memory",
    "PolicyChain",
    "Proposal",
    "WeighedCandidate",
    "Weights",
]
