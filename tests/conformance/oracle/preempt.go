package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
)

// preempt adds what DefaultPreemption's dry run says about each of the named nodes, on its own copy of the world.
func (it *trial) preempt(ctx context.Context, nodes []string, found verdict) error {
	victims, without := map[string]any{}, map[string]any{}
	found["victims"], found["noVictims"], found["pick"] = victims, without, []string{}
	if it.preemption == nil {
		return fmt.Errorf("preempt: the profile has no DefaultPreemption")
	}
	nominated := codeOn(found, it.pod.Status.NominatedNodeName)
	if eligible, why := it.preemption.PodEligibleToPreemptOthers(ctx, it.pod, fwk.NewStatus(nominated)); !eligible {
		found["notEligible"] = why
		return nil
	}
	if code := codeOf(found["preFilter"]); code != fwk.Success && code != fwk.Unschedulable {
		return nil
	}
	var candidates []preemption.Candidate
	budgets, err := it.budgets()
	if err != nil {
		return err
	}
	for _, name := range nodes {
		node, err := it.world.snapshot.NodeInfos().Get(name)
		if err != nil {
			return err
		}
		pods, violations, status := it.preemption.SelectVictimsOnNode(
			ctx, it.state.Clone(), it.pod, node.Snapshot(), budgets)
		if !status.IsSuccess() {
			without[name] = shown(status)
			continue
		}
		if len(pods) == 0 {
			without[name] = shown(fwk.AsStatus(fmt.Errorf("expected at least one victim pod on node %q", name)))
			continue
		}
		keys := []string{}
		for _, pod := range pods {
			keys = append(keys, pod.Namespace+"/"+pod.Name)
		}
		victims[name] = map[string]any{"pods": keys, "numPDBViolations": violations}
		if codeOn(found, name) == fwk.Unschedulable {
			candidates = append(candidates, candidate{name, &extenderv1.Victims{Pods: pods, NumPDBViolations: int64(violations)}})
		}
	}
	found["pick"] = it.pick(ctx, candidates)
	return nil
}

// codeOn is what was said of a node. One that no filter was asked about has the code of PreFilter's rejection.
func codeOn(found verdict, node string) fwk.Code {
	if status, ok := found["filter"].(map[string]any)[node]; ok {
		return codeOf(status)
	}
	if codeOf(found["preFilter"]) == fwk.Unschedulable {
		return fwk.Unschedulable
	}
	return fwk.UnschedulableAndUnresolvable
}

func codeOf(status any) fwk.Code {
	word := status.(map[string]any)["code"]
	for _, code := range []fwk.Code{fwk.Success, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable} {
		if strings.TrimSpace(code.String()) == word {
			return code
		}
	}
	return fwk.Error
}

type candidate struct {
	name    string
	victims *extenderv1.Victims
}

func (it candidate) Name() string                 { return it.name }
func (it candidate) Victims() *extenderv1.Victims { return it.victims }

// tries is how often two candidates are compared: which of two equal ones is selected is drawn by lot.
const tries = 64

// pick is who SelectCandidate may select. It says one of the best; another ties if it is ever selected of these two.
func (it *trial) pick(ctx context.Context, candidates []preemption.Candidate) []string {
	if len(candidates) == 0 {
		return []string{}
	}
	selected := func(among ...preemption.Candidate) string {
		return it.preemption.Evaluator.SelectCandidate(ctx, among).Name()
	}
	best := selected(candidates...)
	names := []string{best}
	for _, each := range candidates {
		if each.Name() == best {
			continue
		}
		at := slices.IndexFunc(candidates, func(other preemption.Candidate) bool { return other.Name() == best })
		for try := 0; try < tries; try++ {
			if selected(candidates[at], each) != best {
				names = append(names, each.Name())
				break
			}
		}
	}
	slices.Sort(names)
	return names
}

// budgets are the PodDisruptionBudgets in name order: the order decides which of several counts a disruption.
func (it *trial) budgets() ([]*policy.PodDisruptionBudget, error) {
	found, err := it.world.informers.Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
	slices.SortFunc(found, func(a, b *policy.PodDisruptionBudget) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found, err
}
