"""Findings and recommendations as the tables of findings.json and recommendations.json."""

from typing import Any

from charllm.report.claims import HOLDS
from charllm.reproduce.verdicts import Advice, Judged, share
from charllm.reproduce.words import (
    NOT_DRAWN,
    accuracy,
    accuracy_words,
    evidence,
    gain_words,
    holds_when,
    interval_basis,
    reason,
    reverses_when,
)
from charllm.result.uncertainty import LEVEL


def finding_table(judged: Judged) -> dict[str, Any]:
    """Return a finding as findings.json holds it."""
    finding, verdict = judged.finding, judged.verdict
    return {
        "name": finding.name,
        "claim": finding.claim.text,
        "verdict": verdict.verdict,
        "effect": verdict.effect,
        "interval": judged.interval,
        "evidence": evidence(judged),
        "unit": finding.unit,
        "rule": finding.claim.rule,
        "error_interval": list(verdict.ends) if verdict.ends else None,
        "error_basis": accuracy(judged),
        "measured": finding.claim.answer or None,
        "shown_by": dict(zip(("show it", "exclude it", "within the error"), share(verdict), strict=True)),
        "claimed_size": finding.claim.size,
        "interval_level": LEVEL if judged.interval else None,
        "interval_basis": interval_basis(judged.drawn) if judged.interval else NOT_DRAWN,
        "median_of_draws": judged.drawn_median,
        "verdicts_of_draws": dict(judged.drawn_verdicts) or None,
        "supporting": {name: judged.effects[name] for name in verdict.supporting},
        "against": {name: judged.effects[name] for name in verdict.against},
        "open": {name: judged.effects[name] for name in verdict.open},
        "not_possible": [name for name, effect in judged.effects.items() if effect is None],
        "readings": judged.readings,
        "circular": finding.claim.circular or None,
        "holds_when": holds_when(judged),
        "reason": reason(judged),
        "note": finding.claim.note,
        "figure": f"figures/finding-{finding.name}.svg",
    }


def advice_table(advice: Advice) -> dict[str, Any]:
    """Return a recommendation as recommendations.json holds it."""
    asked = advice.recommendation
    return {
        "claim": asked.claim,
        "counterfactual": asked.counterfactual,
        "gain": advice.gain,
        "interval": advice.interval,
        "reverses_when": reverses_when(advice),
        "name": asked.name,
        "unit": asked.unit,
        "verdict": gain_words(advice),
        "worth_it": advice.verdict.verdict == HOLDS,
        "rule": asked.gain.rule,
        "error_interval": list(advice.verdict.ends) if advice.verdict.ends else None,
        "error_basis": accuracy_words(asked.gain, advice.verdict),
        "interval_level": LEVEL if advice.interval else None,
        "interval_basis": interval_basis(advice.drawn) if advice.interval else NOT_DRAWN,
        "gains": dict(advice.gains),
        "conditions": dict(advice.arms),
        "cost": asked.cost,
        "figure": f"figures/recommendation-{asked.name}.svg",
    }
