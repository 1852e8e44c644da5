"""study/cue_choices.py and study/surfaces.py: what is tried, tables, composed photographs."""
import cue_choices as study
import numpy as np
import pytest
import surfaces

from ccnn._util.errors import UserError
from ccnn.project.learn import RECIPE
from ccnn.supervision.constraint_builder import ConstraintBuilder
from ccnn.supervision.cue_rows import BOUNDS
from ccnn.supervision.kinds import SUPERVISION


def test_what_is_shipped_is_among_the_trials():
    assert study.Trial() in study.TRIALS and RECIPE.exponent in study.EXPONENTS
    assert len({trial.name for trial in study.TRIALS}) == len(study.TRIALS)
    assert ((RECIPE.rate, RECIPE.second_rate), RECIPE.second) in study.RATES and BOUNDS in study.ROWS


def test_rows_of_a_trial_replace_those_of_the_cue():
    def build():
        S = np.where(np.arange(20) < 8, 0.9, 0.1).reshape(4, 5)
        return ConstraintBuilder(SUPERVISION["tags"]).build([np.array([1, 1, 0])], 3, (4, 5), cue=S)
    as_shipped, bounds = build(), BOUNDS._replace(price=7)
    with study.rows(bounds):
        assert (build().beta[-4:] == 7).all()
    with study.rows(None):
        assert len(build()) < len(as_shipped)
    with study.rows(BOUNDS):
        assert (build().b == as_shipped.b).all()
    assert (build().beta == as_shipped.beta).all()


def test_tables_have_what_is_done_and_a_mean_where_every_set_is():
    def done(trial, sets, more=0):
        exponents = {f"{exponent:g}": 50 + exponent + more for exponent in study.EXPONENTS}
        return [{"set": list(classes), "trial": trial.name, "miou": exponents} for classes in sets]
    found = [*done(study.Trial(), study.SETS), *done(study.Trial(None), study.SETS[:1], more=3)]
    tables = study.tables(found)
    assert "| **inside 0.85, outside 0.05, margin 0.1** | 1 |" + " 51.0 |" * 7 in tables["rows"]
    assert "| no rows | 0 | 53.0 |" + " - |" * 6 in tables["rows"] and len(tables["rows"].splitlines()) == 6
    assert "| as shipped | 0.3 | 50.3 |" in tables["exponents"] and tables.keys() == {"rows", "exponents"}
    faster = study.Trial(study.BOUNDS, *study.RATES[1])
    assert "0.002, then 0.002 for 400 steps | 1 | 51.0 |" in study.tables([*found, *done(faster, study.SETS)])["rates"]
    assert len(study.tables(found[-1:])["rows"].splitlines()[0].split("|")) == 6         # one set and its mean
    with pytest.raises(UserError, match="has no finished trial"):
        study.main(["--report", "--folder", "nowhere"])


def test_composed_photographs(tmp_path):
    masks = surfaces.write(tmp_path / "photos", [0, 1, 3], 0, np.random.default_rng(0))
    assert [np.unique(mask).tolist() for mask in masks] == [[0], [0, 1], [0, 3]]
    assert all(0.1 < (mask > 0).mean() < 0.8 for mask in masks[1:])
    assert (tmp_path / "photos/tags.csv").read_text() == "image,tags\n00.jpg,\n01.jpg,brick\n02.jpg,gravel\n"
    again = surfaces.compose(1, 0, np.random.default_rng(0))[0]
    assert again.shape == (*surfaces.SHAPE, 3) and (again == surfaces.compose(1, 0, np.random.default_rng(0))[0]).all()
    assert (again != surfaces.compose(1, 1, np.random.default_rng(0))[0]).any()
    found = [{"seed": seed, "version": "none", "miou": 80.0 + seed} for seed in (1, 2)]
    assert "| no cue | 2 | 81.5 ± 0.7 |" in surfaces.table(found)
