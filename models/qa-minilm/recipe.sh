#!/bin/sh
# Make the built-in model: four runs that differ by their seed, then a student of the four.
#
#   models/qa-minilm/recipe.sh BASE DATA RUNS [OPTION...]
#
# BASE: a folder with the weights and tokenizer of sentence-transformers/all-MiniLM-L6-v2.
# DATA: the folder with the question files. RUNS: where the runs are kept, 5 GB. The options go to every run
# (`--threads 1`, `--limit 1300` for a trial). The same command goes on with what was ended.
#
# The development part is squad-dev and three training articles, set aside by the hash of their titles among those of
# 250 to 450 questions with a usual share of unanswerable ones. The public test is not read.
set -eu

base=$1 data=$2 runs=$3
shift 3
: "${CORELANE:=corelane}"
# Threads that wait leave the CPU to others.
export OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}"

official=$data/squad-official-train-v2.json.gz
mix="$data/squad-train-v2.json.gz $data/unanswerable-made.json.gz=0.4 $data/qed.json.gz=0.4
    $data/nq-open-oracle.json.gz=0.4 $data/tsqa-human.json.gz=0.4 $data/clapnq-unanswerable.json.gz=0.4"
common="--dev $data/squad-dev-v2.0.json.gz --set-aside Eritrea --set-aside Tajikistan --set-aside Anthropology
    --negatives 0.03 --batch-tokens 8192 --average 0.999 --judged 2 --patience 99 --saved-as fp16"

teachers=
for seed in 1 2 3 4; do
    # shellcheck disable=SC2086  # lists of words
    $CORELANE tune "$base" "$official" $mix $common --epochs 4 --learning-rate 1e-4 --seed $seed \
        --run "$runs/seed-$seed" --no-compile "$@"
    teachers="$teachers $runs/seed-$seed/model"
done

questions=
for file in "$official" $mix; do questions="$questions --questions $file"; done
# shellcheck disable=SC2086
$CORELANE distil $teachers --into "$base" $questions $common --epochs 5 --learning-rate 1.5e-4 --seed 5 \
    --temperature 2 --teachers-part 0.75 --run "$runs/student" --name qa-minilm "$@"
