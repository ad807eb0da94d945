"""Which tests `make test` runs, where their folder and their markers do not say it.

Each entry is the beginning of a test's name, with the case in brackets if it is about some of them.
tests/process/test_test_all.py holds that each is the name of a test, and that another target of the
Makefile runs what `make test` leaves out.
"""

from __future__ import annotations

# Of the tests that need containers, those that `make test` runs; each of the others has a target of
# its own.
_EVERY_CHANGE = {
    "compose/test_promise.py": ("",),
    "compose/test_smoke.py": ("test_three_containers_train_and_end_together",),
    "compose/test_memory_limit.py": ("",),
    "compose/test_kubernetes_job.py": ("",),
    "compose/test_deployed_compose.py": ("test_a_job_of_two_nodes_runs_and_leaves_nothing[v2]",),
    "engines/test_mpi_engine.py": ("test_mpi4py[4-variables]",),
    "image/test_image.py": (
        "test_every_point_is_in_the_document",
        "test_a_programs_status_is_the_containers",
    ),
    "image/test_image_environment.py": (
        "test_a_programs_environment_is_dockers",
        "test_our_packages_are_invisible",
    ),
    "image/test_image_health.py": ("test_the_images_health_check",),
    "image/test_image_hooks.py": ("test_hooks_run_in_order",),
    "image/test_image_programs.py": ("test_a_programs_words_arrive_as_they_are",),
    "image/test_image_stop.py": ("test_a_stopped_program_ends_soon",),
    "image/test_image_users.py": ("test_one_node_runs_as_anybody",),
    "security/test_ssh_door.py": ("test_the_images_sshd_takes_it",),
}
# Of the tests on this machine, those that `make test` leaves to `make test-thorough`: further cases
# of what another case or a lower level proves, and what takes seconds of CPU.
_THOROUGH = {
    # the other node, status, signal or launcher; the simulator has all of them
    "loopback/test_ascend.py": (
        "test_a_table_that_stays_incomplete_ends_the_job_at_the_deadline[-it is empty]",
        "test_a_table_that_stays_incomplete_ends_the_job_at_the_deadline[{",
        "test_the_first_failing_card_ends_the_others[0-",
        "test_sigterm_is_143_and_every_card_may_save[0]",
    ),
    "loopback/test_boot.py": (
        "test_ranks_land_on_every_node_whoever_starts_first[order0]",
        "test_a_second_start_in_the_same_run_directories",
    ),
    "loopback/test_check_all.py": ("test_a_node_that_answers_nonsense_or_nothing[mute]",),
    "loopback/test_faults.py": (
        "test_the_first_failing_rank_is_the_job_s_result_on_every_node[kill",
        "test_sigterm_gives_every_rank_the_grace_and_143_everywhere[0]",
        "test_a_second_signal_skips_the_rest_of_the_grace[0]",
        "test_an_sshd_that_dies_is_never_silent[0]",
        "test_a_limit_on_processes_that_keeps_ranks_from_starting_is_named[8]",
        "test_a_limit_on_processes_that_keeps_ranks_from_starting_is_named[9]",
        "test_an_mpirun_that_is_told_to_start_too_few_ranks_is_no_success[--do-not-launch",
        "test_hosts_that_differ_in_the_worker_s_own_name_are_shown_on_all_nodes[a full name]",
        "test_hosts_that_differ_in_the_worker_s_own_name_are_shown_on_all_nodes[case]",
        "test_hosts_that_differ_in_the_worker_s_own_name_are_shown_on_all_nodes[too",
        "test_two_nodes_with_one_index_are_named_once_no_address_can_be_stale",
        "test_sigusr1_reaches_every_rank_and_ends_nobody[plain-0]",
    ),
    "loopback/test_hydra.py": (
        "test_the_example_trains_as_one_process_would",
        "test_ranks_that_leave_without_finalize_take_nobody_s_grace",
        "test_the_first_failing_rank_is_the_job_s_result[mpich-0]",
        "test_sigterm_reaches_every_rank_which_has_its_grace[mpich-0]",
    ),
    "loopback/test_launchers.py": (
        "test_the_first_process_of_jax_that_fails_ends_all[kill",
        "test_sigterm_reaches_every_process_of_jax[0]",
    ),
    "loopback/test_one_verdict.py": (
        "test_the_first_failing_node_is_the_job_s_result[kill",
        "test_sigterm_to_one_node_gives_143_to_all_and_what_a_program_started_its_grace[0]",
        "test_nothing_that_was_printed_before_the_end_is_lost[plain]",
    ),
    "loopback/test_rogue_peers.py": (
        "test_a_peer_that_says_what_no_node_does_has_failed[flood]",
        "test_a_peer_that_says_what_no_node_does_has_failed[failed-256]",
        "test_a_peer_that_says_what_no_node_does_has_failed[endless]",
        "test_a_peer_that_speaks_for_others_ends_no_job_well[before",
        "test_a_peer_that_speaks_for_others_ends_no_job_well[ends]",
    ),
    "loopback/test_spawn.py": ("test_a_spawned_process_that_fails_is_the_job_s_failure[2]",),
    "loopback/test_stalls_and_restarts.py": (
        "test_a_lost_node_that_comes_back_is_another_attempt[plain-0]",
        "test_one_count_of_restarts_for_all[0-2]",
        "test_a_node_that_does_not_come_back_ends_the_attempt_at_the_deadline",
    ),
    "loopback/test_versions.py": ("test_two_versions_end_the_job_at_once[1]",),
    "process/test_signals_once.py": (
        "test_a_stop_reaches_every_process_of_the_job_once[timeout-mpirun]",
        "test_a_stop_reaches_every_process_of_the_job_once[timeout-plain]",
        "test_a_stop_reaches_every_process_of_the_job_once[setsid-pytorch]",
        "test_a_stop_reaches_every_process_of_the_job_once[setsid-plain]",
        "test_a_stop_reaches_every_process_of_the_job_once[shell-mpirun]",
        "test_a_stop_reaches_every_process_of_the_job_once[shell-pytorch]",
    ),
    "process/test_supervision.py": (
        "test_other_signals_stop_too[1]",
        "test_other_signals_stop_too[3]",
    ),
    # each file of a few, each form of a setting, each way out
    "loopback/test_members.py": (
        "test_a_node_with_few_inodes_left_tells_all[checked-6",
        "test_a_node_with_few_inodes_left_tells_all[checked-9",
        "test_a_node_with_few_inodes_left_tells_all[checked-11",
        "test_a_node_with_few_inodes_left_tells_all[taken after the check-4",
        "test_a_node_with_few_inodes_left_tells_all[taken after the check-6",
        "test_a_node_with_few_inodes_left_tells_all[taken after the check-9",
        "test_a_node_whose_run_directory_takes_no_files_tells_all[0]",
        "test_a_log_folder_that_cannot_be_made_on_a_worker_ends_all[msrun]",
        "test_two_nodes_with_the_first_index_and_the_same_hosts_notice_it",
        "test_a_leader_that_finds_itself_at_a_worker_s_address_calls_again",
        "test_a_waiting_node_wakes_for_heartbeats_alone[1-10-1000]",
    ),
    "loopback/test_networks.py": (
        "test_mpi_takes_the_interface_that_leads_to_the_others[on-one]",
        "test_mpi_takes_the_interface_that_leads_to_the_others[on-all]",
        "test_mpi_s_traffic_takes_what_was_asked_for[auto",
        "test_mpi_s_traffic_takes_what_was_asked_for[ib",
        "test_every_library_of_every_launcher_is_told_what_was_asked_for[plain]",
        "test_a_node_without_the_interface_is_named_with_what_it_has[plain]",
        "test_ipv6_alone[auto-eth1-plain]",
        "test_ipv6_alone[auto-net7",
        "test_ipv6_alone[fd77::/64-eth1",
        "test_ipv6_alone[fd77::/64-net7-mpirun]",
    ),
    "loopback/test_local.py": (
        "test_a_node_that_is_killed[mpirun]",
        "test_a_killed_node_that_comes_back_joins_the_next_attempt[worker-0]",
        "test_names_that_resolve_late[mpirun]",
        "test_nodes_that_do_not_answer_are_killed[2-15]",
        "test_nothing_stays_where_it_is_killed[the command-mpirun]",
        "test_nothing_stays_where_it_is_killed[its group-mpirun]",
        "test_nothing_stays_where_it_is_killed[its child-mpirun]",
        "test_a_second_run_beside_the_first",
        "test_a_variable_that_is_too_long_is_named[mpirun]",
    ),
    "process/test_mpirun_line.py": (
        "test_quiet_leaves_errors_alone[-q]",
        "test_quiet_leaves_errors_alone[--log-level=warning]",
    ),
    "process/test_plan_is_run.py": (
        *(
            f"test_run_does_what_plan_says[{nodes}-{name}, as PID 1]"
            for nodes in ("1", "2, required")
            for name in ("plain", "torchrun", "mpirun")
        ),
        "test_run_does_what_plan_says[2, none",
    ),
    "process/test_run_dir.py": (
        "test_a_folder_in_use_is_refused_and_stays_as_it_is[other text]",
        "test_a_folder_in_use_is_refused_and_stays_as_it_is[pipe]",
        "test_a_folder_in_use_is_refused_and_stays_as_it_is[none]",
        "test_what_a_program_or_somebody_puts_there_stays[signal]",
    ),
    "process/test_exit_tables.py": ("test_every_end_is_kept[some",),
    # much output, and machines under load
    "loopback/test_lines.py": (
        "test_lines_that_come_in_pieces_do_not_mix[mpirun-the end",
        "test_lines_that_come_in_pieces_do_not_mix[hydra",
    ),
    "loopback/test_logs.py": (
        "test_nothing_is_lost_and_no_line_is_broken[mpirun, 2 nodes, JSON",
        "test_nothing_is_lost_and_no_line_is_broken[hydra",
        "test_nothing_is_lost_and_no_line_is_broken[programs",
        "test_the_rate_of_a_plain_pipe_and_of_bare_mpirun",
        "test_under_torchrun_each_line_has_its_rank_and_torch_s_own_have_none",
    ),
    "loopback/test_readers.py": (
        "test_the_reader_of_stdout_leaves[0]",
        "test_a_rank_that_fails_after_much_output[plain]",
    ),
    "loopback/test_timeline.py": ("test_every_part_arrives_on_a_busy_machine",),
    # the real torch, of which a start takes 2 s of CPU; and what measures for seconds
    "loopback/test_nested.py": (
        "test_torch_s_own_launcher_in_a_script",
        "test_an_mpirun_in_the_ranks_script_ends_the_job_by_name[jax]",
    ),
    "loopback/test_netcheck.py": (
        "test_a_helper_that_is_frozen_is_a_red_cell_and_no_hang",
        "test_where_logs_are_json_its_answer_stays_one[table]",
        "test_sigterm_ends_it_on_every_node[0-alone]",
        "test_sigterm_ends_it_on_every_node[1-alone]",
    ),
    "loopback/test_torch.py": (
        "test_a_node_may_end_long_after_the_first",
        "test_a_failure_is_every_node_s_without_a_roll_call[1-c10d]",
        "test_nodes_that_end_well_apart_from_each_other_without_a_roll_call",
        "test_a_launcher_that_is_lost_is_no_success_without_a_roll_call",
        "test_a_node_that_never_comes_is_no_success_without_a_roll_call",
        "test_output_is_the_program_s_byte_for_byte_and_nothing_is_left",
        "test_status_of_a_node_without_a_roll_call",
        "test_torch_s_own_wait_for_the_others_ends_as_if_they_were_well",
    ),
    # documents and tests that few changes concern
    "loopback/test_sample_launcher.py": ("",),
    "loopback/test_tutorial.py": ("",),
    "process/test_document_commands.py": ("test_a_page_s_blocks_work_twice_in_a_row",),
    "process/test_sample_adapters.py": ("test_a_device", "test_a_deploy_target"),
    "process/test_test_all.py": ("test_every_test_is_run_by_a_target_of_test_all",),
}


def _names(table: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(f"tests/{module}::{test}" for module, tests in table.items() for test in tests)


EVERY_CHANGE, THOROUGH = _names(_EVERY_CHANGE), _names(_THOROUGH)
