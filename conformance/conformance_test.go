// Package conformance runs the conformance suite of the Gateway API as it is. scripts/conformance calls it.
package conformance

import (
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance takes its options from the suite's own flags.
func TestConformance(t *testing.T) {
	conformance.RunConformance(t)
}
