/** Withdraws an offer. */
import { Durability } from "@contract/checkpoint_pb.js";
import type { Handoff } from "@contract/handoff_service_pb.js";
import { useState } from "preact/hooks";
import { namedThread } from "../actions/checkpoint_names.ts";
import { Advanced } from "../actions/durability.tsx";
import { inboxLink } from "../links.ts";
import { Ask } from "../parts/ask.tsx";
import { say } from "../parts/notices.tsx";
import { handoffs } from "../server/calls.ts";
import { oneLine } from "../words.ts";

interface WithdrawDialogProps {
  offer: Handoff;
  onClose: () => void;
}

export function WithdrawDialog({ offer, onClose }: WithdrawDialogProps) {
  const [durability, setDurability] = useState(Durability.JOURNALED);
  const { handoffId, toAgent, descriptor } = offer;
  const what = `the offer of ${namedThread(descriptor?.threadId ?? "")}`;
  const withdraw = async () => {
    await handoffs.withdrawHandoff({ handoffId, durability });
    say(`Withdrew ${what}.`, { href: inboxLink({ state: "withdrawn" }), text: "Withdrawn offers" });
  };
  return (
    <Ask
      title="Withdraw the offer"
      confirm="Withdraw"
      dangerous
      onConfirm={withdraw}
      onClose={onClose}
    >
      <p>
        Withdraws {what}
        {toAgent && ` to “${oneLine(toAgent, 60)}”`}: no agent can adopt it from the inbox then.
        This cannot be undone; hand the checkpoint off again instead.
      </p>
      <p class="hint">
        The descriptor stays valid: an agent that has the descriptor can still adopt with it.
      </p>
      <Advanced durability={durability} onChange={setDurability} />
    </Ask>
  );
}
