package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"
)

// preempt adds what DefaultPreemption's dry run says about each of the named nodes, on its own copy of the world.
func (it *trial) preempt(ctx context.Context, nodes []string, found verdict) error {
	victims, without := map[string]any{}, map[string]any{}
	found["victims"], found["noVictims"] = victims, without
	if it.preemption == nil {
		return fmt.Errorf("preempt: the profile has no DefaultPreemption")
	}
	if eligible, why := it.preemption.PodEligibleToPreemptOthers(ctx, it.pod, nil); !eligible {
		found["notEligible"] = why
		return nil
	}
	if found["preFilter"].(map[string]any)["code"] == fwk.UnschedulableAndUnresolvable.String() {
		return nil
	}
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
	}
	return nil
}

// budgets are the PodDisruptionBudgets in name order: the order decides which of several counts a disruption.
func (it *trial) budgets() ([]*policy.PodDisruptionBudget, error) {
	found, err := it.world.informers.Policy().V1().PodDisruptionBudgets().Lister().List(labels.Everything())
	slices.SortFunc(found, func(a, b *policy.PodDisruptionBudget) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found, err
}
